// Damages checkpoints, writes valid hashes for them, and loads each in a child process.
//   fuzz_checkpoint FOLDER COUNT SEED FILE...   COUNT mutants of the FILEs in turn, written to FOLDER
// Prints a table. The exit code is 1 if a load crashed, hung for 5 s, printed anything, or took more memory than twice
// its file and 64 MiB.
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fcntl.h>
#include <algorithm>
#include <cstdio>
#include <fstream>
#include <heed/data/checkpoint.hpp>
#include <iterator>
#include <map>
#include <random>

#include "tests/tools/seal.hpp"

using namespace heed;

namespace {

constexpr std::size_t kBlock = 512;  // size of the user block, which has the hash

class Mutator {
 public:
  explicit Mutator(std::uint64_t seed) : random_(seed) {}

  // A damaged file with a valid user block. `kind` becomes the kind of damage.
  std::string mutate(std::string file, std::string& kind) {
    static constexpr const char* kKinds[] = {"bytes", "fields", "addresses", "messages", "blocks", "zeros", "length"};
    const std::size_t which = below(std::size(kKinds));
    kind = kKinds[which];
    const std::vector<std::size_t> places = structures(file);
    for (std::size_t times = 1 + below(3); times > 0; --times) change(file, which, places);
    return test::sealed(std::move(file));
  }

 private:
  std::mt19937_64 random_;

  std::size_t below(std::size_t n) { return static_cast<std::size_t>(random_() % n); }

  // The places of HDF5 structures, found by their signatures.
  static std::vector<std::size_t> structures(const std::string& file) {
    std::vector<std::size_t> places{kBlock};
    for (const char* name : {"OHDR", "OCHK", "TREE", "SNOD", "HEAP", "GCOL", "FRHP", "FHDB", "FHIB", "BTHD", "BTLF"})
      for (std::size_t at = file.find(name, kBlock); at != std::string::npos; at = file.find(name, at + 1))
        places.push_back(at);
    return places;
  }

  static void put(std::string& file, std::size_t at, std::uint64_t value, std::size_t bytes) {
    if (at + bytes <= file.size()) std::memcpy(&file[at], &value, bytes);
  }

  std::uint64_t strange_number(const std::string& file) {
    const std::uint64_t numbers[] = {0,
                                     1,
                                     2,
                                     3,
                                     255,
                                     0x7fff,
                                     0xffff,
                                     0x7fffffff,
                                     0xffffffff,
                                     1ull << 31,
                                     1ull << 40,
                                     1ull << 62,
                                     1ull << 63,
                                     ~0ull,
                                     file.size(),
                                     file.size() - kBlock,
                                     below(file.size())};
    return numbers[below(std::size(numbers))];
  }

  void change(std::string& file, std::size_t which, const std::vector<std::size_t>& places) {
    if (file.size() <= kBlock + 64) return;
    const std::size_t inside = kBlock + below(file.size() - kBlock), near = places[below(places.size())] + below(160);
    const std::size_t width = std::size_t{1} << below(4);
    switch (which) {
      case 0: file[inside] = static_cast<char>(file[inside] ^ (1 << below(8))); break;
      case 1: put(file, near, strange_number(file), width); break;
      case 2: put(file, near, places[below(places.size())] - kBlock, 8); break;
      case 3:  // the type and the size of a message
        put(file, near, below(24), 1);
        if (below(2) == 0) put(file, near + 1, below(64), 2);
        break;
      case 4: {  // a part is copied, or two parts are exchanged
        const std::size_t size = std::min<std::size_t>(8 + below(400), (file.size() - kBlock) / 2);
        const std::size_t a = kBlock + below(file.size() - kBlock - size),
                          b = kBlock + below(file.size() - kBlock - size);
        const std::string first = file.substr(a, size), second = file.substr(b, size);
        file.replace(b, size, first);
        if (below(2) == 0) file.replace(a, size, second);
        break;
      }
      case 5: {
        const std::size_t end = below(2) == 0 ? file.size() : std::min(file.size(), inside + below(300));
        std::fill(file.begin() + static_cast<std::ptrdiff_t>(inside), file.begin() + static_cast<std::ptrdiff_t>(end),
                  0);
        break;
      }
      default:
        file.resize(below(2) == 0 ? inside : file.size() + below(5000));
        put(file, kBlock + (file[kBlock + 8] == 0 ? 40 : 28), file.size(), 8);  // the end of the file in the superblock
    }
  }
};

struct Tally {
  int files = 0, accepted = 0, refused = 0, crashed = 0, hung = 0;
  long printed = 0;
  double memory = 0;  // MiB above twice the size of the file
};

// Loads the file in a child process: 0 accepted, 1 refused.
void load(const std::string& path, std::size_t size, const std::string& messages, Tally& tally) {
  const pid_t child = ::fork();
  if (child == 0) {
    const int out = ::open(messages.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
    ::dup2(out, 1), ::dup2(out, 2);
    const rlimit none{0, 0};
    ::setrlimit(RLIMIT_CORE, &none);
#ifndef HEED_SANITIZED_ADDRESS  // its shadow memory takes more
    const rlimit memory{std::size_t{8} << 30, std::size_t{8} << 30};
    ::setrlimit(RLIMIT_AS, &memory);
#endif
    ::alarm(5);
    int code = 0;
    try {
      load_checkpoint(path);
    } catch (const Error&) {
      code = 1;
    } catch (...) {
      code = 2;
    }
    std::exit(code);  // as at the end of a program: libraries are closed here
  }
  int status = 0;
  rusage used{};
  ::wait4(child, &status, 0, &used);
  ++tally.files;
  const int code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  tally.accepted += code == 0;
  tally.refused += code == 1;
  const bool hung = WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM;
  tally.hung += hung;
  tally.crashed += code != 0 && code != 1 && !hung;
  tally.printed += static_cast<long>(std::filesystem::file_size(messages));
  const double mib = static_cast<double>(used.ru_maxrss) / 1024 - 2 * static_cast<double>(size) / (1 << 20);
  tally.memory = std::max(tally.memory, mib);
}

std::string bytes_of(const char* path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 5) return 2;
  const std::string folder = argv[1], path = folder + "/mutant.h5", messages = folder + "/messages";
  const int count = std::atoi(argv[2]);
  Mutator mutator(std::stoull(argv[3]));
  std::vector<std::string> files;
  for (int i = 4; i < argc; ++i) files.push_back(bytes_of(argv[i]));
  std::map<std::string, Tally> table;
  Tally& all = table["~all"];  // sorted last
  for (int i = 0; i < count; ++i) {
    std::string kind;
    const std::string mutant = mutator.mutate(files[static_cast<std::size_t>(i) % files.size()], kind);
    std::ofstream(path, std::ios::binary) << mutant;
    Tally one;
    load(path, mutant.size(), messages, one);
    for (Tally* t : {&table[kind], &all}) {
      t->files += one.files, t->accepted += one.accepted, t->refused += one.refused;
      t->crashed += one.crashed, t->hung += one.hung, t->printed += one.printed;
      t->memory = std::max(t->memory, one.memory);
    }
    if (one.crashed + one.hung + one.printed > 0) {
      std::ofstream(folder + "/bad" + std::to_string(i) + ".h5", std::ios::binary) << mutant;
      std::printf("mutant %d (%s): crashed %d, hung %d, printed %ld bytes\n", i, kind.c_str(), one.crashed, one.hung,
                  one.printed);
    }
  }
  std::printf("%-10s %8s %8s %8s %8s %6s %8s %20s\n", "kind", "files", "accepted", "refused", "crashed", "hung",
              "printed", "MiB above two files");
  for (const auto& [kind, t] : table)
    std::printf("%-10s %8d %8d %8d %8d %6d %8ld %20.1f\n", kind.c_str(), t.files, t.accepted, t.refused, t.crashed,
                t.hung, t.printed, t.memory);
  return all.crashed + all.hung + all.printed > 0 || all.memory > 64;
}

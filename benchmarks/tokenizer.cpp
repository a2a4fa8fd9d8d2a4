// Encoding with the tokenizer of a published model, on one thread: medians of passes over the first 8 MiB of a text,
// which is encoded line by line and as a whole.
//   bench_tokenizer FILE.json|FILE.gguf TEXT
// Peer: benchmarks/peers/tokenizer_tokenizers.py FILE.json TEXT
#include <algorithm>
#include <cstdio>
#include <heed/data/text.hpp>
#include <heed/io/tokenizer_gguf.hpp>

#include "benchmarks/peak.hpp"

using namespace heed;

namespace {

// Prints bytes and tokens per second. encode() returns the number of tokens.
template <class Encode>
void show(const char* what, std::size_t bytes, const Encode& encode) {
  std::size_t tokens = 0;
  const double seconds = benchmarks::median_seconds([&] { tokens = encode(); });
  std::printf("heed %s: %.2f MB/s, %.2f million tokens/s, %zu tokens\n", what,
              static_cast<double>(bytes) / 1e6 / seconds, static_cast<double>(tokens) / 1e6 / seconds, tokens);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fprintf(stderr, "usage: bench_tokenizer FILE.json|FILE.gguf TEXT\n");
    return 2;
  }
  try {
    const std::filesystem::path file = argv[1];
    const JsonTokenizer tokenizer =
        file.extension() == ".gguf" ? tokenizer_of(GgufFile(file)) : JsonTokenizer::load(file);
    std::string text = read_text(std::filesystem::path(argv[2]));
    constexpr std::size_t kBytes = std::size_t{8} << 20;
    if (text.size() > kBytes) text.resize(kBytes - unfinished_utf8(std::string_view(text).substr(0, kBytes)));
    show("lines", text.size(), [&] {
      std::size_t tokens = 0;
      for (std::size_t begin = 0; begin < text.size();) {
        const std::size_t end = std::min(text.find('\n', begin), text.size() - 1) + 1;
        tokens += tokenizer.encode(std::string_view(text).substr(begin, end - begin)).size();
        begin = end;
      }
      return tokens;
    });
    show("whole", text.size(), [&] { return tokenizer.encode(text).size(); });
  } catch (const Error& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 1;
  }
}

// A model of a disk: applies recorded calls and makes the states that a power cut may leave.
#include "tests/tools/crash_states.hpp"

#include <algorithm>
#include <fstream>
#include <stdexcept>

#include "tests/data/temporary_folder.hpp"

namespace heed::test {
namespace {

namespace fs = std::filesystem;
using Kind = DiskCall::Kind;

void do_to(std::string& content, const DiskCall& call) {
  if (call.kind == Kind::truncate) content.resize(call.at, '\0');
  if (call.kind != Kind::write) return;
  content.resize(std::max(content.size(), call.at + call.bytes.size()), '\0');
  content.replace(call.at, call.bytes.size(), call.bytes);
}

// The part of a write that is on the disk: all; nothing; its first half only; its second half after zeros; zeros.
enum class Part { all, none, begin, end, zeros };

void do_part(std::string& content, DiskCall call, Part part) {
  const std::size_t half = call.bytes.size() / 2;
  if (part == Part::none || (call.kind == Kind::truncate && part != Part::all)) return;
  if (part == Part::begin) call.bytes.resize(half);
  if (part == Part::end) std::fill_n(call.bytes.begin(), half, '\0');
  if (part == Part::zeros) std::fill(call.bytes.begin(), call.bytes.end(), '\0');
  do_to(content, call);
}

std::string folder_of(const std::string& path) { return fs::path(path).parent_path().string(); }

}  // namespace

std::vector<DiskCall> recorded_calls(const fs::path& record, const fs::path& folder) {
  const std::map<std::string, Kind> kinds = {{"create", Kind::create},     {"write", Kind::write},
                                             {"truncate", Kind::truncate}, {"sync", Kind::sync},
                                             {"rename", Kind::rename},     {"unlink", Kind::unlink}};
  std::vector<DiskCall> calls;
  std::ifstream in(record, std::ios::binary);
  std::string name, path;
  for (std::size_t a, b; in >> name >> a >> b && in.ignore() && std::getline(in, path);) {
    path = fs::path(path).lexically_normal().lexically_relative(folder).string();
    if (path == ".") path.clear();  // the folder itself, as folder_of() calls it
    if (name == "from") {
      calls.back().from = path;
      continue;
    }
    DiskCall call{kinds.at(name), path, {}, a, std::string(b, '\0')};
    in.read(call.bytes.data(), static_cast<std::streamsize>(b));
    calls.push_back(std::move(call));
  }
  return calls;
}

CrashDisk::CrashDisk(const fs::path& folder) {
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    if (!entry.is_regular_file()) continue;
    seen_[entry.path().lexically_relative(folder).string()] = static_cast<int>(files_.size());
    const std::string content = bytes_of(entry.path());
    files_.push_back({content, content, {}});
  }
  sure_ = seen_;
}

void CrashDisk::change(Names& names, const Change& change) {
  const auto forget = [&](const std::string& path) {
    if (const auto at = names.find(path); at != names.end() && at->second == change.file) names.erase(at);
  };
  if (change.call.kind == Kind::unlink) return forget(change.call.path);
  if (change.call.kind == Kind::rename) forget(change.call.from);
  names[change.call.path] = change.file;
}

void CrashDisk::apply(const DiskCall& call) {
  if (call.kind == Kind::create) files_.emplace_back();
  const bool is_new = call.kind == Kind::create;
  const std::string& name = call.kind == Kind::rename ? call.from : call.path;
  const auto found = seen_.find(name);
  const int file = is_new ? static_cast<int>(files_.size()) - 1 : found == seen_.end() ? -1 : found->second;
  if (call.kind == Kind::sync && file < 0) {  // of a folder
    std::vector<Change> rest;
    for (const Change& c : pending_) folder_of(c.call.path) == call.path ? change(sure_, c) : rest.push_back(c);
    pending_ = std::move(rest);
    return;
  }
  if (file < 0) throw std::runtime_error("crash states: no recorded call created " + name);
  File& f = files_[static_cast<std::size_t>(file)];
  switch (call.kind) {
    case Kind::write:
    case Kind::truncate:
      do_to(f.seen, call);
      f.pending.push_back(call);
      break;
    case Kind::sync:
      f.sure = f.seen;
      f.pending.clear();
      break;
    case Kind::create:
    case Kind::rename:
    case Kind::unlink: pending_.push_back({call, file}); change(seen_, pending_.back());
  }
}

// The contents that unsynced writes may leave: every subset if there are at most five writes, and the first k for every
// k. One write may be there in part, after all before it or with all others. Only zeros: the size was changed first.
std::set<const std::string*> CrashDisk::left_of(const File& file) const {
  const std::size_t n = file.pending.size();
  std::set<const std::string*> left;
  const auto add = [&](const std::function<Part(std::size_t)>& part) {
    std::string content = file.sure;
    for (std::size_t i = 0; i < n; ++i) do_part(content, file.pending[i], part(i));
    left.insert(keep(std::move(content)));
  };
  for (std::size_t subset = 0; n <= 5 && subset < std::size_t{1} << n; ++subset)
    add([&](std::size_t i) { return (subset >> i & 1) != 0 ? Part::all : Part::none; });
  for (std::size_t k = 0; k <= n; ++k) {
    for (const Part part : {Part::none, Part::begin, Part::end, Part::zeros}) {
      add([&](std::size_t i) { return i < k ? Part::all : i == k ? part : Part::none; });
      add([&](std::size_t i) { return i == k ? part : Part::all; });
    }
  }
  add([](std::size_t) { return Part::zeros; });
  return left;
}

Files CrashDisk::now() const {
  Files files;
  for (const auto& [path, file] : seen_) files[path] = keep(files_[static_cast<std::size_t>(file)].seen);
  return files;
}

std::set<Files> CrashDisk::states() const {
  std::map<int, std::set<const std::string*>> left;  // per file, computed once
  std::set<Files> all;
  for (std::size_t subset = 0; subset < std::size_t{1} << std::min<std::size_t>(pending_.size(), 8); ++subset) {
    Names names = sure_;
    for (std::size_t i = 0; i < pending_.size(); ++i)  // of more than eight changes, only some subsets
      if ((subset >> i % 8 & 1) != 0) change(names, pending_[i]);
    std::vector<Files> states = {{}};
    for (const auto& [path, file] : names) {
      auto& contents = left[file];
      if (contents.empty()) contents = left_of(files_[static_cast<std::size_t>(file)]);
      // No program reads a .tmp file, so one of its contents is enough.
      const std::size_t count = path.ends_with(".tmp") ? 1 : contents.size();
      std::vector<Files> next;
      for (const Files& state : states) {
        auto content = contents.begin();
        for (std::size_t i = 0; i < count; ++i, ++content) (next.emplace_back(state))[path] = *content;
      }
      states = std::move(next);
    }
    all.insert(states.begin(), states.end());
  }
  return all;
}

void write_files(const Files& files, const fs::path& folder) {
  for (const auto& entry : fs::recursive_directory_iterator(folder))
    if (entry.is_regular_file() && files.count(entry.path().lexically_relative(folder).string()) == 0)
      fs::remove(entry.path());
  for (const auto& [path, content] : files) {
    fs::create_directories((folder / path).parent_path());
    std::ofstream(folder / path, std::ios::binary) << *content;
  }
}

}  // namespace heed::test

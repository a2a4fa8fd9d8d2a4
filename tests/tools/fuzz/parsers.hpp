// The parsers of io/ as a fuzzer calls them: the bytes of a file become values, or an Error. The targets of libFuzzer
// (target.cpp) and the test of the stored inputs (tests/io/fuzz_test.cpp) call the same functions, which use the values
// as a program would: tensors are loaded, and a tokenizer encodes and decodes a text.
#pragma once
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <heed/core/check.hpp>
#include <heed/io/detail/gguf_format.hpp>
#include <heed/io/npz.hpp>
#include <heed/io/safetensors.hpp>
#include <heed/io/safetensors_header.hpp>
#include <heed/io/tokenizer_gguf.hpp>
#include <heed/io/tokenizer_json.hpp>
#include <numeric>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>

#include "tests/data/temporary_folder.hpp"

namespace heed::test::fuzz {

inline std::span<const std::byte> bytes_of_input(std::string_view input) {
  return std::as_bytes(std::span(input.data(), input.size()));
}

// Throws an exception that is no Error: the library broke a promise.
inline void demand(bool holds, const char* promise) {
  if (!holds) throw std::logic_error(std::string("fuzz: ") + promise);
}

// Encodes a text with the tokenizer, and decodes it. The text has characters of many kinds, and tokens of the file.
inline void use(const JsonTokenizer& tokenizer) {
  constexpr Index kTokens = 16, kDecoded = 64;
  const Index size = tokenizer.vocabulary_size();
  std::string text = "Hello,  w\u00f6rld! 12 e\u0301 \u4e2d\u6587\u2581x\r\n\t 'll <s>[CLS] \U0001f600\ufb01";
  for (std::int32_t id = 0; id < std::min(size, kTokens); ++id) text += tokenizer.token(id);

  const Tokens ids = tokenizer.encode(text);
  const auto is_valid = [size](std::int32_t id) { return id >= 0 && id < size; };
  demand(std::ranges::all_of(ids, is_valid), "an id is outside of the vocabulary");
  demand(std::ranges::all_of(tokenizer.with_special_tokens(ids), is_valid), "a special id is outside");
  tokenizer.encode_as_text(text);
  tokenizer.encode_next(text);
  demand(!find_invalid_utf8(tokenizer.decode(ids)), "a decoded text is not UTF-8");
  tokenizer.decode_without_special(ids);
  Tokens first(static_cast<std::size_t>(std::min(size, kDecoded)));
  std::iota(first.begin(), first.end(), 0);
  tokenizer.decode(first);
}

// A file in memory with this content, as long as the object.
class MemoryFile {
 public:
  explicit MemoryFile(std::string_view content) : descriptor_(::memfd_create("heed", MFD_CLOEXEC)) {
    const auto size = static_cast<ssize_t>(content.size());
    demand(descriptor_ >= 0 && ::write(descriptor_, content.data(), content.size()) == size, "no file in memory");
  }
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;
  ~MemoryFile() { ::close(descriptor_); }
  std::filesystem::path path() const { return "/proc/self/fd/" + std::to_string(descriptor_); }

 private:
  int descriptor_;
};

// ---- The formats ----

inline void npz(std::string_view input) { parse_npz(bytes_of_input(input), "x.npz"); }

// Opens a model by this index, whose text was parsed. The folder has the tensor x in a.safetensors, and y in
// b.safetensors.
inline void open_by_index(std::string_view index) {
  static const TemporaryFolder folder;
  static const bool written = [] {
    for (const std::string name : {"x", "y"}) {
      const std::string header = detail::safetensors_header({{name, StoredType::f32, {2}, 0, 8}}, {});
      folder.write((name == "x" ? "a" : "b") + std::string(".safetensors"), header + std::string(8, '\0'));
    }
    return true;
  }();
  demand(written, "no folder");
  const SafetensorsFile file(folder.write("model.safetensors.index.json", std::string(index)));
  for (const auto& [name, stored] : file.tensors()) load(stored);
}

// A file begins with the length of its header, of which the last byte is 0. Other inputs that begin with { are an
// index.
inline void safetensors(std::string_view input) {
  if (input.starts_with('{') && input.size() >= 8 && input[7] != 0) {
    detail::parse_safetensors_index(input, "x.json");
    return open_by_index(input);
  }
  const auto content = detail::parse_safetensors(bytes_of_input(input), "x.safetensors");
  for (const auto& [name, stored] : content.tensors) load(stored);
}

inline void tokenizer(std::string_view input) { use(JsonTokenizer::from_state(input)); }

inline void gguf(std::string_view input) {
  const auto contents = detail::parse_gguf(bytes_of_input(input), "GGUF file: x.gguf");
  for (const auto& [name, stored] : contents.tensors) load(stored);
  if (!contents.metadata.contains("tokenizer.ggml.tokens")) return;
  const MemoryFile file(input);
  const GgufFile opened(file.path());
  end_tokens_of(opened);
  use(tokenizer_of(opened));
}

// ---- What a parser makes of an input ----

struct Outcome {
  bool accepted = false;
  std::string error = {};  // the message, if it was refused
};

// Other exceptions than Error are not caught.
inline Outcome outcome_of(void (*parse)(std::string_view), std::string_view input) {
  constexpr std::size_t kLongest = 2000;  // bytes of a message
  try {
    parse(input);
    return {true, {}};
  } catch (const Error& e) {
    const std::string message = e.what();
    demand(!message.empty() && message.size() <= kLongest, "a message is empty or long");
    return {false, message};
  }
}

}  // namespace heed::test::fuzz

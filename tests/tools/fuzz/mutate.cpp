// Mutations of JSON values, and repairs of what a random change breaks.
#include "tests/tools/fuzz/mutate.hpp"

#include <zlib.h>

#include <algorithm>
#include <cstring>
#include <iterator>
#include <nlohmann/json.hpp>
#include <optional>
#include <random>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

extern "C" std::size_t LLVMFuzzerMutate(std::uint8_t* data, std::size_t size, std::size_t max);

namespace heed::test::fuzz {
namespace {

using Json = nlohmann::ordered_json;

std::uint64_t number_at(std::string_view bytes, std::size_t at, std::size_t width) {
  std::uint64_t n = 0;
  for (std::size_t i = width; i-- > 0;) n = n << 8 | static_cast<unsigned char>(bytes[at + i]);
  return n;
}
void put_number(std::string& bytes, std::size_t at, std::uint64_t n, std::size_t width) {
  for (std::size_t i = 0; i < width; ++i) bytes[at + i] = static_cast<char>(n >> (8 * i) & 255);
}

// The bytes after changes by libFuzzer: other bytes, words of the dictionary, parts of other inputs.
std::string changed_bytes(std::string bytes, std::size_t max) {
  const std::size_t size = std::min(bytes.size(), max);
  bytes.resize(max);
  bytes.resize(LLVMFuzzerMutate(reinterpret_cast<std::uint8_t*>(bytes.data()), size, max));
  return bytes;
}

// ---- JSON ----

// Words with a meaning in the headers of safetensors and in tokenizers.
constexpr const char* kWords =
    "a b ab ▁ Ġ é e\u0301 <0x0A> <unk> \\s+ (?:a|b)* \\p{L}{1,3} [^a] BPE WordPiece WordLevel Unigram NFC NFD NFKC "
    "NFKD "
    "Lowercase StripAccents Strip Prepend Replace Nmt ByteLevel BertNormalizer Precompiled Sequence Split Digits "
    "Metaspace BertPreTokenizer Punctuation Whitespace WhitespaceSplit UnicodeScripts CharDelimiterSplit "
    "TemplateProcessing BertProcessing RobertaProcessing ByteFallback Fuse BPEDecoder Isolated Removed "
    "MergedWithPrevious MergedWithNext Contiguous always never first F64 F32 F16 BF16 I64 I32 I16 I8 U64 U32 U16 U8 "
    "BOOL F8_E4M3 a.safetensors b.safetensors x y type single_word lstrip rstrip normalized special vocab merges "
    "unk_token unk_id byte_fallback fuse_unk ignore_merges dropout pattern Regex String content behavior invert dtype "
    "shape data_offsets __metadata__ weight_map end_of_word_suffix continuing_subword_prefix max_input_chars_per_word "
    "clean_text handle_chinese_chars strip_accents lowercase prepend_scheme replacement split individual_digits "
    "add_prefix_space use_regex precompiled_charsmap cleanup prefix suffix";

std::vector<std::string> words() {
  std::vector<std::string> all = {"", " "};
  std::istringstream in(kWords);
  for (std::string word; in >> word;) all.push_back(word);
  return all;
}

class JsonMutator {
 public:
  JsonMutator(unsigned seed, std::size_t max) : random_(seed), max_(max) {}

  // A text with some values changed; nullopt if the text is no JSON.
  std::optional<std::string> mutate(std::string_view text) {
    Json root = Json::parse(text, nullptr, false);
    if (root.is_discarded()) return {};
    for (std::size_t times = 1 + below(3); times > 0; --times) {
      nodes_.clear();
      collect(root);
      change(*nodes_[below(nodes_.size())]);
    }
    return root.dump(-1, ' ', false, Json::error_handler_t::replace);
  }

 private:
  std::minstd_rand random_;
  std::size_t max_;
  std::vector<Json*> nodes_ = {};

  std::size_t below(std::size_t n) { return static_cast<std::size_t>(random_()) % n; }

  void collect(Json& node) {
    nodes_.push_back(&node);
    if (node.is_structured())
      for (Json& child : node) collect(child);
  }

  std::string word() {
    static const std::vector<std::string> all = words();
    return all[below(all.size())];
  }

  Json simple() {
    const double numbers[] = {0, 1, -1, 2, 4, 8, 0.5, -1.5, 255, 65536, 2147483647, 9007199254740993.0, 1e300};
    switch (below(6)) {
      case 0: return nullptr;
      case 1: return below(2) == 0;
      case 2: return static_cast<std::int64_t>(below(300));
      case 3: return numbers[below(std::size(numbers))];
      case 4: return below(2) == 0 ? Json::array() : Json::object();
      default: return word();
    }
  }
  Json other() { return below(3) == 0 ? simple() : Json(*nodes_[below(nodes_.size())]); }

  std::string changed_text(const std::string& text) {
    switch (below(4)) {
      case 0: return word();
      case 1: return text + word();
      case 2: return text + text;
      default: return changed_bytes(text, std::min<std::size_t>(text.size() + 16, max_));
    }
  }

  void change_structure(Json& node) {
    const std::size_t at = node.empty() ? 0 : below(node.size());
    if (node.is_array()) {
      Json items = node;  // `node` may be an ancestor of what other() copies
      switch (below(3)) {
        case 0:
          if (!items.empty()) items.erase(items.begin() + static_cast<std::ptrdiff_t>(at));
          break;
        case 1: items.push_back(items.empty() ? other() : Json(items[at])); break;
        default: items.insert(items.begin() + static_cast<std::ptrdiff_t>(at), other());
      }
      node = std::move(items);
      return;
    }
    const auto member = std::next(node.begin(), static_cast<std::ptrdiff_t>(at));
    if (below(3) == 0 && !node.empty()) {
      node.erase(member);
    } else {
      Json value = below(2) == 0 && !node.empty() ? Json(*member) : other();
      node[below(2) == 0 || node.empty() ? word() : changed_text(member.key())] = std::move(value);
    }
  }

  void change(Json& node) {
    const std::size_t choice = below(8);
    if (node.is_structured() && choice < 5) return change_structure(node);
    if (choice == 5) {
      Json copy = other();
      node = std::move(copy);
    } else if (choice == 6 && node.is_object()) {
      static constexpr const char* kLists[] = {"normalizers", "pretokenizers", "decoders", "processors"};
      Json whole = {{"type", "Sequence"}};
      whole[kLists[below(std::size(kLists))]] = Json::array({node});
      node = std::move(whole);
    } else if (node.is_string()) {
      node = changed_text(node.get<std::string>());
    } else if (node.is_number_integer()) {
      node = node.get<std::int64_t>() + static_cast<std::int64_t>(below(9)) - 4;
    } else if (node.is_boolean()) {
      node = !node.get<bool>();
    } else {
      Json copy = simple();
      node = std::move(copy);
    }
  }
};

// ---- Repairs ----

// Where a JSON object at the beginning of the text ends.
std::size_t end_of_json(std::string_view text) {
  std::size_t depth = 0;
  bool quoted = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (quoted && text[i] == '\\')
      ++i;
    else if (text[i] == '"')
      quoted = !quoted;
    else if (!quoted && text[i] == '{')
      ++depth;
    else if (!quoted && text[i] == '}' && --depth == 0)
      return i + 1;
  }
  return text.size();
}

// A file whose header ends where its JSON ends, with as many bytes of values as before or as its tensors need.
std::string changed_safetensors(const std::string& bytes, unsigned seed, std::size_t max) {
  constexpr std::size_t kLength = 8;
  if (bytes.size() < kLength || (bytes[0] == '{' && bytes[7] != 0))
    return JsonMutator(seed, max).mutate(bytes).value_or(bytes);
  const std::string_view rest = std::string_view(bytes).substr(kLength);
  const std::size_t end = end_of_json(rest);
  std::string header = JsonMutator(seed, max).mutate(rest.substr(0, end)).value_or(std::string(rest.substr(0, end)));
  std::string values(rest.substr(end));
  if (seed % 3 != 0) {
    std::uint64_t largest = 0;
    const Json json = Json::parse(header, nullptr, false);
    if (json.is_object())
      for (const Json& tensor : json)
        if (tensor.is_object() && tensor.contains("data_offsets") && tensor["data_offsets"].is_array())
          for (const Json& n : tensor["data_offsets"])
            if (n.is_number_unsigned()) largest = std::max(largest, n.get<std::uint64_t>());
    if (largest < max) values.resize(static_cast<std::size_t>(largest));
  }
  std::string made(kLength, '\0');
  put_number(made, 0, header.size(), kLength);
  return made + header + values;
}

// The CRC and the size of a member's bytes, stored or deflated; nullopt if they cannot be inflated.
std::optional<std::pair<std::uint32_t, std::size_t>> content_of(std::string_view packed, unsigned method) {
  std::string bytes(packed);
  if (method != 0) {
    bytes.assign(std::size_t{1} << 16, '\0');
    z_stream stream = {};
    if (inflateInit2(&stream, -15) != Z_OK) return {};
    stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(packed.data()));
    stream.avail_in = static_cast<uInt>(packed.size());
    stream.next_out = reinterpret_cast<Bytef*>(bytes.data());
    stream.avail_out = static_cast<uInt>(bytes.size());
    const int result = inflate(&stream, Z_FINISH);
    bytes.resize(stream.total_out);
    inflateEnd(&stream);
    if (result != Z_STREAM_END) return {};
  }
  const auto crc = crc32(0, reinterpret_cast<const Bytef*>(bytes.data()), static_cast<uInt>(bytes.size()));
  return std::pair(static_cast<std::uint32_t>(crc), bytes.size());
}

// An archive in which CRC and size of each member are those of its bytes, in its header and in the directory.
std::string repaired_npz(std::string file) {
  constexpr std::size_t kHeader = 30, kEntry = 46;
  constexpr std::string_view kEntrySignature("PK\1\2", 4), kHeaderSignature("PK\3\4", 4);
  for (std::size_t at = file.find(kEntrySignature); at != file.npos; at = file.find(kEntrySignature, at + 4)) {
    if (file.size() - at < kEntry) break;
    const std::size_t header = number_at(file, at + 42, 4), packed = number_at(file, at + 20, 4);
    if (header > file.size() || file.size() - header < kHeader || file.compare(header, 4, kHeaderSignature) != 0)
      continue;
    const std::size_t begin = header + kHeader + number_at(file, header + 26, 2) + number_at(file, header + 28, 2);
    if (begin > file.size() || packed > file.size() - begin) continue;
    const auto content =
        content_of(std::string_view(file).substr(begin, packed), static_cast<unsigned>(number_at(file, at + 10, 2)));
    if (!content) continue;
    for (const std::size_t crc : {at + 16, header + 14}) {
      put_number(file, crc, content->first, 4);
      put_number(file, crc + 4, packed, 4);
      put_number(file, crc + 8, content->second, 4);
    }
  }
  return file;
}

}  // namespace

std::size_t mutated(Kind kind, std::uint8_t* data, std::size_t size, std::size_t max, unsigned seed) {
  if (seed % 2 == 0 || kind == Kind::gguf) return LLVMFuzzerMutate(data, size, max);
  seed /= 2;
  std::string input(reinterpret_cast<const char*>(data), size);
  if (kind == Kind::npz) {
    input = repaired_npz(changed_bytes(std::move(input), max));
  } else if (kind == Kind::safetensors) {
    input = changed_safetensors(input, seed, max);
  } else {
    input = JsonMutator(seed, max).mutate(input).value_or(std::string());
  }
  if (input.empty() || input.size() > max) return LLVMFuzzerMutate(data, size, max);
  std::memcpy(data, input.data(), input.size());
  return input.size();
}

}  // namespace heed::test::fuzz

// Parses and builds the headers of safetensors files, and parses their index.
#include <heed/core/names.hpp>
#include <heed/io/json.hpp>
#include <heed/io/safetensors_header.hpp>
//
#include <nlohmann/json.hpp>

#include <algorithm>
#include <limits>
#include <set>

namespace heed::detail {
namespace {

// The events of nlohmann's parser, which does not recurse. A duplicate key is visible here; a parsed value would keep
// only one of its values. Each value that a derived class does not expect throws Error.
class SafetensorsJson : public nlohmann::json_sax<nlohmann::json> {
 public:
  // `document` is the subject of messages: "the header of model.safetensors".
  explicit SafetensorsJson(std::string document) : document_(std::move(document)) {}

  void parse(std::string_view text) {
    refuse_zero_byte(text, "load_safetensors: " + document_);
    nlohmann::json::sax_parse(text.begin(), text.end(), this);
  }

  bool null() override { return other("null"); }
  bool boolean(bool) override { return other("true or false"); }
  bool number_integer(std::int64_t) override { return other("a negative number"); }
  bool number_unsigned(std::uint64_t) override { return other("a number"); }
  bool number_float(double, const std::string&) override { return other("not a whole number below 2^64"); }
  bool string(std::string&) override { return other("a text"); }
  bool binary(nlohmann::json::binary_t&) override { return other("binary"); }
  bool start_object(std::size_t) override { return other("an object"); }
  bool start_array(std::size_t) override { return other("an array"); }
  bool end_array() override { return true; }
  bool parse_error(std::size_t position, const std::string&, const nlohmann::json::exception&) override {
    heed::fail("load_safetensors: ", document_, " is not JSON at byte ", position, "; the file is damaged");
  }

 protected:
  const std::string document_;

  // The value that the parser reads now, and what it must be, for messages.
  virtual std::string subject() const = 0;
  virtual std::string expected() const = 0;

  bool other(const char* kind) const {
    heed::fail("load_safetensors: in ", document_, ", ", subject(), " is ", kind, "; it must be ", expected());
  }
  void refuse_duplicate(bool is_new, const std::string& key) const {
    require(is_new, "load_safetensors: ", document_, " has two entries ", excerpt(key), "; keys must be unique");
  }
};

// A tensor as the header describes it. Its three fields may be in any order.
struct DescribedTensor {
  std::string type = {};
  std::vector<std::uint64_t> shape = {}, offsets = {};
};

// Reads the header. Values are checked by safetensors_content().
class SafetensorsHeaderReader final : public SafetensorsJson {
 public:
  using SafetensorsJson::SafetensorsJson;

  std::map<std::string, DescribedTensor, std::less<>> tensors = {};
  std::map<std::string, std::string> metadata = {};

  bool start_object(std::size_t) override {
    if (level_ == Level::document)
      level_ = Level::names;
    else if (level_ == Level::names)
      level_ = name_ == kSafetensorsMetadata ? Level::metadata : Level::fields;
    else
      return other("an object");
    return true;
  }

  bool key(std::string& key) override {
    if (level_ == Level::names) {
      const bool is_metadata = key == kSafetensorsMetadata;
      refuse_duplicate(is_metadata ? !has_metadata_ : tensors.try_emplace(key).second, key);
      has_metadata_ = has_metadata_ || is_metadata;
      name_ = key;
      fields_.clear();
    } else if (level_ == Level::metadata) {
      refuse_duplicate(metadata.try_emplace(key).second, key);
    } else {
      require(key == "dtype" || key == "shape" || key == "data_offsets", "load_safetensors: in ", document_, ", ",
              excerpt(name_), " has the field ", excerpt(key), "; it must have only dtype, shape and data_offsets");
      refuse_duplicate(fields_.insert(key).second, name_ + "." + key);
    }
    key_ = key;
    return true;
  }

  bool string(std::string& text) override {
    if (level_ == Level::metadata)
      metadata[key_] = text;
    else if (level_ == Level::fields && key_ == "dtype")
      tensors[name_].type = text;
    else
      return other("a text");
    return true;
  }

  bool start_array(std::size_t) override {
    if (level_ != Level::fields || key_ == "dtype") return other("an array");
    level_ = Level::numbers;
    return true;
  }

  bool number_unsigned(std::uint64_t number) override {
    if (level_ != Level::numbers) return other("a number");
    const bool is_shape = key_ == "shape";
    std::vector<std::uint64_t>& numbers = is_shape ? tensors[name_].shape : tensors[name_].offsets;
    const std::size_t limit = is_shape ? kMaxRank : 2;
    require(numbers.size() < limit, "load_safetensors: in ", document_, ", ", excerpt(name_), " has more than ", limit,
            is_shape ? " axes; tensors have at most " : " data_offsets; there must be ", limit);
    numbers.push_back(number);
    return true;
  }

  bool end_array() override {
    level_ = Level::fields;
    return true;
  }

  bool end_object() override {
    for (const char* field : {"dtype", "shape", "data_offsets"})
      require(level_ != Level::fields || fields_.contains(field), "load_safetensors: in ", document_, ", ",
              excerpt(name_), " has no ", field, "; it must have dtype, shape and data_offsets");
    level_ = Level::names;
    return true;
  }

 private:
  enum class Level { document, names, metadata, fields, numbers };
  Level level_ = Level::document;
  std::string name_, key_;        // of the value that is read now: a tensor or __metadata__, and a key in it
  std::set<std::string> fields_;  // of the tensor that is read now
  bool has_metadata_ = false;

  std::string subject() const override {
    if (level_ == Level::document) return "the whole";
    if (level_ == Level::names) return excerpt(name_);
    if (level_ == Level::metadata) return std::string(kSafetensorsMetadata) + "." + excerpt(key_);
    return (level_ == Level::numbers ? "a number of " : "") + excerpt(name_) + "." + key_;
  }
  std::string expected() const override {
    if (level_ == Level::numbers) return "a whole number from 0 on";
    if (level_ == Level::metadata || (level_ == Level::fields && key_ == "dtype")) return "a text";
    return level_ == Level::fields ? "an array of whole numbers" : "an object";
  }
};

// Reads an index: {"metadata": anything, "weight_map": {tensor: file}}.
class SafetensorsIndexReader final : public SafetensorsJson {
 public:
  using SafetensorsJson::SafetensorsJson;

  std::map<std::string, std::string, std::less<>> files = {};  // of each tensor
  bool has_map = false;

  bool key(std::string& key) override {
    if (depth_ == 1) {
      require(key == "metadata" || key == "weight_map", "load_safetensors: ", document_, " has the entry ",
              excerpt(key), "; it must have only metadata and weight_map");
      refuse_duplicate(key == "metadata" || !has_map, key);
      in_map_ = key == "weight_map";
      has_map = has_map || in_map_;
      key_ = key;
    } else if (in_map_) {
      refuse_duplicate(files.try_emplace(key).second, key);
      key_ = key;
    }
    return true;
  }

  bool string(std::string& text) override {
    if (!in_map_ || depth_ != 2) return skip("a text");
    files[key_] = text;
    return true;
  }

  bool start_object(std::size_t) override {
    if (in_map_ && depth_ != 1) return other("an object");
    ++depth_;
    return true;
  }
  bool end_object() override {
    --depth_;
    return true;
  }
  bool start_array(std::size_t) override {
    skip("an array");
    ++depth_;
    return true;
  }
  bool end_array() override { return end_object(); }
  bool null() override { return skip("null"); }
  bool boolean(bool) override { return skip("true or false"); }
  bool number_integer(std::int64_t) override { return skip("a number"); }
  bool number_unsigned(std::uint64_t) override { return skip("a number"); }
  bool number_float(double, const std::string&) override { return skip("a number"); }

 private:
  std::size_t depth_ = 0;
  bool in_map_ = false;
  std::string key_;

  bool skip(const char* kind) const { return in_map_ || depth_ == 0 ? other(kind) : true; }
  std::string subject() const override { return depth_ == 0 ? "the whole" : excerpt(key_); }
  std::string expected() const override { return depth_ == 2 ? "the name of a file" : "an object"; }
};

std::uint64_t little_endian(std::span<const std::byte> bytes) {
  std::uint64_t value = 0;
  for (std::size_t i = bytes.size(); i-- > 0;) value = value << 8 | std::to_integer<std::uint64_t>(bytes[i]);
  return value;
}

[[noreturn]] void refuse_pickled(const std::string& file) {
  heed::fail("load_safetensors: ", file,
             " is a pickled file of PyTorch, and unpickling can run any code; convert it to "
             "safetensors (in Python: safetensors.torch.save_file)");
}

// torch.save() writes a ZIP archive; before PyTorch 1.6 it wrote a pickle of protocol 2. Protocols 3 to 5 are newer.
bool is_pickled(std::span<const std::byte> bytes) {
  const std::string_view start(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  return start.starts_with("PK\3\4") || (start.size() > 1 && start[0] == '\x80' && start[1] >= 2 && start[1] <= 5);
}

bool is_pickled_name(std::string_view file) {
  return std::ranges::any_of(std::initializer_list<std::string_view>{".bin", ".pt", ".pth", ".pkl"},
                             [&](std::string_view ending) { return file.ends_with(ending); });
}

// The header of a file. Throws Error if the file cannot have one.
std::string_view header_text(std::span<const std::byte> bytes, const std::string& file) {
  const bool begins = bytes.size() > kSafetensorsLength && bytes[kSafetensorsLength] == std::byte{'{'};
  if (!begins && is_pickled(bytes)) refuse_pickled(file);
  require(bytes.size() >= kSafetensorsLength, "load_safetensors: ", file, " has ", bytes.size(),
          " bytes; a safetensors file has at least ", kSafetensorsLength);
  const std::uint64_t length = little_endian(bytes.first(kSafetensorsLength));
  const std::size_t rest = bytes.size() - kSafetensorsLength;
  require(length <= kSafetensorsMaxHeader, "load_safetensors: ", file, " has a header of ", length,
          " bytes by its first 8 bytes; it must have at most ", kSafetensorsMaxHeader);
  require(length <= rest, "load_safetensors: ", file, " has a header of ", length, " bytes by its first 8 bytes, but ",
          rest, " bytes after them; it is truncated or no safetensors file");
  require(begins && length > 0, "load_safetensors: the header of ", file,
          " does not begin with {; it is damaged or no safetensors file");
  return {reinterpret_cast<const char*>(bytes.data()) + kSafetensorsLength, static_cast<std::size_t>(length)};
}

// A tensor without its bytes. Throws Error unless its type, shape and number of bytes agree.
StoredTensor stored_tensor(const std::string& name, const DescribedTensor& described, const std::string& file) {
  const std::string subject = "load_safetensors: in the header of " + file + ", " + excerpt(name);
  const std::optional<StoredType> type = stored_type_named(described.type);
  require(type && !is_quantized(*type), subject, " has the type ", excerpt(described.type),
          "; it must be F64, F32, F16, BF16, I64, I32, I16, I8, U64, U32, U16, U8 or BOOL");
  StoredTensor stored{.name = name, .type = *type};
  for (const std::uint64_t size : described.shape) {
    require(size <= static_cast<std::uint64_t>(std::numeric_limits<Index>::max()), subject, " has an axis of size ",
            size, "; it must be below 2^63");
    stored.shape.push_back(static_cast<Index>(size));
  }
  require(described.offsets.size() == 2, subject, " has ", described.offsets.size(),
          " data_offsets; there must be 2, the begin and the end");
  const std::uint64_t begin = described.offsets[0], end = described.offsets[1];
  require(begin <= end, subject, " has the data_offsets ", begin, " and ", end,
          "; the end must not be before the begin");
  const std::optional<std::size_t> bytes = stored_bytes(*type, stored.shape);
  require(bytes.has_value(), subject, " has the shape ", stored.shape,
          "; the product of its sizes must be at most 2^60");
  require(*bytes == end - begin, subject, " is ", stored.shape, " ", name_of(*type), ", which has ", *bytes,
          " bytes, but its data_offsets span ", end - begin, "; they must agree");
  return stored;
}

}  // namespace

SafetensorsContent parse_safetensors(std::span<const std::byte> bytes, const std::string& file) {
  const std::string_view header = header_text(bytes, file);
  const std::span<const std::byte> values = bytes.subspan(kSafetensorsLength + header.size());
  SafetensorsHeaderReader reader("the header of " + file);
  reader.parse(header);

  SafetensorsContent content{.metadata = std::move(reader.metadata)};
  using Place = std::pair<std::pair<std::uint64_t, std::uint64_t>, StoredTensor*>;
  std::vector<Place> places;  // in the order of the file; an empty tensor precedes another at the same offset
  for (const auto& [name, described] : reader.tensors) {
    const auto added = content.tensors.emplace(name, stored_tensor(name, described, file)).first;
    places.push_back({{described.offsets[0], described.offsets[1]}, &added->second});
  }
  std::ranges::sort(places, {}, &Place::first);
  std::uint64_t at = 0;
  for (const auto& [offsets, stored] : places) {
    require(offsets.first == at, "load_safetensors: in the header of ", file, ", ", excerpt(stored->name),
            " begins at offset ", offsets.first, ", but the tensor before it ends at ", at,
            "; there must be no gap and no overlap");
    at = offsets.second;
    require(at <= values.size(), "load_safetensors: ", file, " has ", values.size(), " bytes of values, but ",
            excerpt(stored->name), " ends at offset ", at, "; the file is truncated");
    stored->bytes = values.subspan(offsets.first, at - offsets.first);
  }
  require(at == values.size(), "load_safetensors: ", file, " has ", values.size(),
          " bytes of values, but its tensors end at offset ", at, "; they must cover the whole file");
  return content;
}

std::map<std::string, std::string, std::less<>> parse_safetensors_index(std::string_view json,
                                                                        const std::string& index) {
  require(json.size() <= kSafetensorsMaxHeader, "load_safetensors: ", index, " has ", json.size(),
          " bytes; an index has at most ", kSafetensorsMaxHeader);
  SafetensorsIndexReader reader(index);
  reader.parse(json);
  require(reader.has_map && !reader.files.empty(), "load_safetensors: ", index,
          " has no weight_map with tensors; it is no index of safetensors files");
  for (const auto& [name, file] : reader.files) {
    if (is_pickled_name(file)) refuse_pickled(file);
    const bool is_plain = file.find_first_of("/\\\0", 0, 3) == file.npos && file.ends_with(".safetensors");
    require(is_plain, "load_safetensors: ", index, " has the file ", excerpt(file), " for ", excerpt(name),
            "; it must be the name of a .safetensors file in the folder of the index");
  }
  return std::move(reader.files);
}

std::string safetensors_header(const std::vector<SafetensorsEntry>& entries,
                               const std::map<std::string, std::string>& metadata) {
  std::vector<std::string> texts, parts;
  for (const auto& [key, text] : metadata) texts.push_back(quoted_json(key) + ":" + quoted_json(text));
  if (!texts.empty()) parts.push_back(quoted_json(kSafetensorsMetadata) + ":{" + joined(texts, {}, ",") + "}");
  for (const SafetensorsEntry& e : entries) {
    std::string sizes;
    for (const Index size : e.shape) sizes += (sizes.empty() ? "" : ",") + std::to_string(size);
    parts.push_back(quoted_json(e.name) + ":{\"dtype\":\"" + std::string(name_of(e.type)) + "\",\"shape\":[" + sizes +
                    "],\"data_offsets\":[" + std::to_string(e.begin) + "," + std::to_string(e.end) + "]}");
  }
  std::string json = "{" + joined(parts, {}, ",") + "}";
  json.resize((json.size() + 7) / 8 * 8, ' ');
  std::string length;
  for (std::size_t i = 0; i < kSafetensorsLength; ++i) length += static_cast<char>(json.size() >> (8 * i) & 255);
  return length + json;
}

}  // namespace heed::detail

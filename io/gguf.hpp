// GGUF files: models as llama.cpp and other engines use them. A file has metadata (numbers, texts and arrays by key)
// and tensors by name, often quantized. The specification is ggml's docs/gguf.md. heed writes version 3 and reads
// versions 3 and 2, which have the same layout.
//
// Example:
//
//   const GgufMetadata metadata = {{"general.architecture", "llama"}, {"llama.block_count", std::uint32_t{2}}};
//   save_gguf("tiny.gguf", metadata, {{"token_embd.weight", Tensor::ones({4, 32}), StoredType::q8_0}});
//   const GgufFile file("tiny.gguf");
//   const Tensor embedding = load(file.tensor("token_embd.weight"));  // float32 [4, 32]
//   std::cout << file.number("llama.block_count") << ' ' << embedding.shape() << '\n';
#pragma once
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <heed/io/stored_tensor.hpp>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

namespace heed {

// An array of metadata. All its values have one type.
struct GgufArray {
  // The alternatives are in the order of GGUF's numbers of types. Arrays of arrays have at most 4 levels when they are
  // read; llama.cpp refuses them.
  using Values = std::variant<std::vector<std::uint8_t>, std::vector<std::int8_t>, std::vector<std::uint16_t>,
                              std::vector<std::int16_t>, std::vector<std::uint32_t>, std::vector<std::int32_t>,
                              std::vector<float>, std::vector<bool>, std::vector<std::string>, std::vector<GgufArray>,
                              std::vector<std::uint64_t>, std::vector<std::int64_t>, std::vector<double>>;
  Values values = {};

  GgufArray() = default;  // no values, of type uint8
  // Takes over the values.
  template <class T>
  GgufArray(std::vector<T> all) : values(std::move(all)) {}

  // The number of values.
  std::size_t size() const {
    return std::visit([](const auto& all) { return all.size(); }, values);
  }
  // Whether types and values are equal.
  friend bool operator==(const GgufArray& a, const GgufArray& b) { return a.values == b.values; }
};

// A value of metadata. The alternatives are in the order of GGUF's numbers of types. The type is a part of the value:
// llama.cpp refuses a block_count that is not uint32, so write std::uint32_t{2} and not 2, which is int32.
using GgufValue = std::variant<std::uint8_t, std::int8_t, std::uint16_t, std::int16_t, std::uint32_t, std::int32_t,
                               float, bool, std::string, GgufArray, std::uint64_t, std::int64_t, double>;

// Values by key. Keys are paths such as "llama.attention.head_count"; the first name is an architecture, "general",
// "tokenizer" or a community.
using GgufMetadata = std::map<std::string, GgufValue, std::less<>>;

// GGUF's name of a value's type: "uint32", "string", "array".
std::string_view type_name(const GgufValue& value);

namespace detail {
class MappedFile;
}

// A GGUF file that is open for reading. Metadata are copied into memory. Tensors are views of the mapped file, which
// must not be changed while it is used. Copies share the mapping, which ends with the last copy.
class GgufFile {
 public:
  // Reads the metadata and the list of tensors, and checks all sizes and offsets. Throws Error if the file cannot be
  // read, is truncated, big-endian or of another version, or breaks the specification. Throws Error also for a tensor
  // of a type that StoredType lacks (Q5_K, IQ4_XS), with the name of both.
  explicit GgufFile(const std::filesystem::path& file);

  // The path, for messages.
  const std::string& name() const { return name_; }
  // All of the metadata.
  const GgufMetadata& metadata() const { return metadata_; }
  // The tensors by name. GGUF lists the innermost axis first; the shapes here are row-major, the innermost axis last.
  const std::map<std::string, StoredTensor, std::less<>>& tensors() const { return tensors_; }
  // Throws Error, which names the tensor and the file, if there is none with this name.
  const StoredTensor& tensor(std::string_view name) const;
  // Releases the memory of a tensor's bytes, for example after load(). A later use reads them from the file again.
  void forget(const StoredTensor& tensor) const;

  // Whether the metadata has the key.
  bool has(std::string_view key) const { return metadata_.find(key) != metadata_.end(); }
  // A required value of the metadata. Throws Error, which names the key and the file, if it is missing or of another
  // type. number() accepts all integer types and at least 0, real() all numbers; the others accept only their type.
  std::uint64_t number(std::string_view key) const;
  double real(std::string_view key) const;
  bool flag(std::string_view key) const;
  const std::string& text(std::string_view key) const;
  // The same for an array: array<std::string>("tokenizer.ggml.tokens").
  template <class T>
  const std::vector<T>& array(std::string_view key) const {
    const auto* array = std::get_if<GgufArray>(&value(key));
    const auto* values = array ? std::get_if<std::vector<T>>(&array->values) : nullptr;
    if (values == nullptr) refuse_array(key, GgufArray(std::vector<T>{}));
    return *values;
  }

 private:
  std::string name_;
  std::shared_ptr<const detail::MappedFile> mapping_;
  GgufMetadata metadata_;
  std::map<std::string, StoredTensor, std::less<>> tensors_;

  const GgufValue& value(std::string_view key) const;
  [[noreturn]] void refuse(std::string_view key, std::string_view wanted) const;
  [[noreturn]] void refuse_array(std::string_view key, const GgufArray& wanted) const;
};

// A tensor for save_gguf().
struct GgufTensor {
  std::string name = {};              // from 1 to 63 bytes
  Tensor value = {};                  // at most 4 axes, none empty; row-major as in heed
  // f64, f32, f16, bf16, i64, i32 or q8_0, to which store() converts the value, or the type of a quantized value.
  StoredType type = StoredType::f32;
  // Applied to the value when it is written, if set; returns a tensor of its shape. So the results for all tensors are
  // not in memory at once.
  std::function<Tensor(const Tensor&)> change = {};
};

// Writes version 3 of the format. Tensors are stored in the given order, each at the next multiple of the alignment:
// the metadata's "general.alignment" (uint32, a power of two from 8 to 1 MiB), or 32. The metadata must have the text
// "general.architecture". If a tensor is quantized and "general.quantization_version" is missing, it is added as 2.
// Values are converted in pieces of some megabytes, so that no second copy of a tensor is in memory unless it has gaps.
// The file is written as file.tmp, synced and renamed, so that a failure keeps the old file.
//
// Throws Error, before a file is written, for a name, key, shape, type or alignment that GGUF does not allow, and for
// two tensors of one name. Throws Error as store() does if a type cannot hold a number.
void save_gguf(const std::filesystem::path& file, const GgufMetadata& metadata, const std::vector<GgufTensor>& tensors);

}  // namespace heed

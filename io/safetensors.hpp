// Reads and writes safetensors files, the format in which most published models store their weights. A file has named
// tensors and texts by key, and no code.
//
// Example:
//
//   Rng rng(1);
//   Linear model(4, 2, rng);
//   export_safetensors("linear.safetensors", model);
//   const SafetensorsFile file("linear.safetensors");
//   for (const auto& [name, tensor] : file.tensors()) std::cout << name << ' ' << tensor.shape << '\n';
//   load_model(file, model);
#pragma once
#include <concepts>
#include <cstddef>
#include <filesystem>
#include <functional>
#include <heed/data/checkpoint.hpp>
#include <heed/io/stored_tensor.hpp>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace heed {

namespace detail {
class MappedFile;
}

// A safetensors file, or the files of a model that is split by an index. The files are mapped: their values are read
// when they are used. Copies of this object share the mapping. While it exists, no program may truncate the files.
//
// Source: https://github.com/huggingface/safetensors, "Format". The index is that of transformers' save_pretrained().
class SafetensorsFile {
 public:
  // `path` is a file, an index (its name ends with .json), or a folder with model.safetensors or, if there is none,
  // model.safetensors.index.json. Safe for files of unknown origin: everything except the values is checked here.
  // This takes memory of a few times the header, which has at most 100 MB.
  //
  // Throws Error, which names the file, if a file cannot be read, is truncated or has more bytes than its tensors, if
  // its header has duplicate or unknown keys, and for types that load() does not convert (F8_E4M3, C64, ...). Throws
  // Error for an index that names a file outside of its folder, or whose tensors differ from those of its files. Throws
  // Error for PyTorch's pickled files (.bin, .pt).
  explicit SafetensorsFile(const std::filesystem::path& path);

  // The tensors by name. Their bytes are valid as long as this object or a copy of it.
  const std::map<std::string, StoredTensor, std::less<>>& tensors() const { return tensors_; }
  // The tensor with a name. Throws Error, which names the tensor and the file, if there is none.
  const StoredTensor& tensor(std::string_view name) const;
  // Releases the memory of a tensor's bytes, for example after load(). A later use reads them from the file again.
  void forget(const StoredTensor& tensor) const;
  // The texts of __metadata__, such as "format" = "pt". With several files, the first file that has a key gives its
  // text.
  const std::map<std::string, std::string>& metadata() const { return metadata_; }
  // The file or index that was read: that in the folder if a folder was given.
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
  std::map<std::string, StoredTensor, std::less<>> tensors_;
  std::map<std::string, std::string> metadata_;
  std::vector<std::shared_ptr<const detail::MappedFile>> mapped_;  // the files

  void open_files_of_index();
};

// All tensors of a file, an index or a folder, converted by load(). Throws Error as SafetensorsFile and load().
TensorsByName load_safetensors(const std::filesystem::path& path);

// How tensors are written.
struct SafetensorsOptions {
  std::map<std::string, std::string> metadata = {{"format", "pt"}};  // some readers require "format"
  // The type of floating tensors: f64, f32, f16 or bf16. By default, each tensor keeps its dtype.
  std::optional<StoredType> type = {};
};

// Writes tensors: float64, float32, bfloat16, int32 and bool8 as F64, F32, BF16, I32 and BOOL. Tied tensors (handles of
// the same values) are written once, under the first name; the other names become entries of the metadata, whose text
// is the first name, as safetensors.torch.save_model() writes them. The file is written as file.tmp, synced and
// renamed, so that a failure keeps the old file. Equal tensors give equal bytes.
//
// Throws Error for an undefined tensor, for names and metadata that are not UTF-8, for another type, if a number
// overflows options.type, and if the file cannot be written.
void save_safetensors(const std::filesystem::path& file, const TensorsByName& tensors,
                      const SafetensorsOptions& options = {});

// Writes a section of a checkpoint, by default its model, without the name of the section. Throws Error also if the
// section has no tensors.
void export_safetensors(const std::filesystem::path& file, const Checkpoint& checkpoint,
                        const std::string& section = "model", const SafetensorsOptions& options = {});

namespace detail {

// Writes tensors in this order of names: the first name of a tied tensor is its name in the file.
void write_safetensors(const std::filesystem::path& file, const std::vector<NamedTensor>& tensors,
                       const SafetensorsOptions& options);

// "model-00001-of-00003.safetensors", the name of a file in transformers' layout.
std::string shard_name(std::size_t number, std::size_t count);
// Writes tensors in files whose values have at most `max_bytes` bytes (a larger tensor has its own file), in the layout
// of transformers: model.safetensors, or several files and model.safetensors.index.json. path_of(name) returns the path
// of the file with a name. One tensor at a time is in memory in the type of the file.
using PathOfFile = std::function<std::filesystem::path(const std::string& name)>;
void write_safetensors_shards(const PathOfFile& path_of, const std::vector<NamedTensor>& tensors, std::size_t max_bytes,
                              const SafetensorsOptions& options = {});

// The parameters and buffers of a model, a tied parameter under each of its names.
std::vector<NamedTensor> named_tensors(const Members& members);
// The tensors as a section of a checkpoint. Some refer to the mapped files, which the result keeps: do not write to
// them.
Checkpoint checkpoint_of(const SafetensorsFile& file, const std::string& section);

template <class M>
concept NoCheckpoint = !std::same_as<std::remove_const_t<M>, Checkpoint>;

}  // namespace detail

// Writes all parameters and buffers of a model, by name. A tied parameter has its first name in the model.
template <detail::NoCheckpoint M>
void export_safetensors(const std::filesystem::path& file, M& model, const SafetensorsOptions& options = {}) {
  detail::write_safetensors(file, detail::named_tensors(detail::members_of(model)), options);
}

// Copies values into a model, as load_model() for a checkpoint does: all checks precede the first change. F16 counts as
// float32, and integers as int32. A tied parameter may have any of its names in the file. options.section is not used.
//   load_model(file, model, {.convert = true, .renames = {{"transformer.h", "blocks"}}});
template <class M>
LoadReport load_model(const SafetensorsFile& file, M& model, const LoadOptions& options = {}) {
  return detail::load_members(detail::checkpoint_of(file, options.section), detail::members_of(model), options);
}

}  // namespace heed

// Reads safetensors files: one file, or the files that an index names.
#include <functional>
#include <heed/data/detail/mapped_file.hpp>
#include <heed/io/safetensors.hpp>
#include <heed/io/safetensors_header.hpp>
//
#include <cstdint>
#include <set>

namespace heed {
namespace {

namespace fs = std::filesystem;
constexpr const char* kLoadSafetensors = "load_safetensors";

// The file or index to read at `path`.
fs::path safetensors_at(const fs::path& path) {
  std::error_code ignored;
  if (!fs::is_directory(path, ignored)) return path;
  for (const char* name : {"model.safetensors", "model.safetensors.index.json"})
    if (fs::exists(path / name, ignored)) return path / name;
  for (const char* name : {"pytorch_model.bin", "pytorch_model.bin.index.json"}) {
    require(!fs::exists(path / name, ignored), kLoadSafetensors, ": ", path.string(), " has ", name,
            ", a pickled file of PyTorch, but no model.safetensors; convert it to safetensors (in Python: "
            "safetensors.torch.save_file)");
  }
  fail(kLoadSafetensors, ": ", path.string(), " has neither model.safetensors nor model.safetensors.index.json");
}

// Whether the bytes are an array of T, except for the type.
template <class T>
bool is_aligned(const std::byte* bytes) {
  return reinterpret_cast<std::uintptr_t>(bytes) % alignof(T) == 0;
}

// The tensor without a copy, if heed computes with its type and the bytes are aligned. Booleans are copied, since their
// bytes may be neither 0 nor 1. `keeper` owns the bytes.
Tensor viewed(const StoredTensor& stored, const std::shared_ptr<void>& keeper) {
  const DType dtype = dtype_for(stored.type);
  const bool same_type = stored_type_for(dtype) == stored.type && dtype != DType::bool8;
  const bool aligned = visit_dtype(dtype, [&]<class T>(T) { return is_aligned<T>(stored.bytes.data()); });
  if (!same_type || !aligned || stored.bytes.empty()) return load(stored);
  return Tensor::of_memory(const_cast<std::byte*>(stored.bytes.data()), keeper, stored.shape, dtype);
}

// One file, and its content, which refers to the mapped bytes.
struct OpenSafetensors {
  std::shared_ptr<const detail::MappedFile> mapped;
  detail::SafetensorsContent content;

  explicit OpenSafetensors(const fs::path& path)
      : mapped(std::make_shared<const detail::MappedFile>(kLoadSafetensors, path)),
        content(detail::parse_safetensors(mapped->bytes(), path.string())) {}
};

using FileOfTensor = std::map<std::string, std::string, std::less<>>;

FileOfTensor read_index(const fs::path& path) {
  const detail::MappedFile mapped(kLoadSafetensors, path);
  const auto bytes = mapped.bytes();
  return detail::parse_safetensors_index({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, path.string());
}

}  // namespace

SafetensorsFile::SafetensorsFile(const fs::path& path) : path_(safetensors_at(path)) {
  if (path_.extension() == ".json") {
    open_files_of_index();
    return;
  }
  OpenSafetensors file(path_);
  tensors_ = std::move(file.content.tensors);
  metadata_ = std::move(file.content.metadata);
  mapped_.push_back(std::move(file.mapped));
}

void SafetensorsFile::open_files_of_index() {
  const FileOfTensor file_of = read_index(path_);
  std::set<std::string> names;
  for (const auto& [tensor, name] : file_of) names.insert(name);
  for (const std::string& name : names) {
    OpenSafetensors file(path_.parent_path() / name);
    for (const auto& [tensor, stored] : file.content.tensors) {
      const auto place = file_of.find(tensor);
      require(place != file_of.end() && place->second == name, kLoadSafetensors, ": ", path_.string(),
              place == file_of.end() ? " lacks " : " has another file for ", excerpt(tensor), ", which is in ",
              excerpt(name), "; the index must agree with the files");
    }
    tensors_.merge(file.content.tensors);
    metadata_.merge(file.content.metadata);
    mapped_.push_back(std::move(file.mapped));
  }
  for (const auto& [tensor, name] : file_of) {
    require(tensors_.contains(tensor), kLoadSafetensors, ": ", path_.string(), " has ", excerpt(tensor), " in ",
            excerpt(name), ", which lacks it; the index must agree with the files");
  }
}

const StoredTensor& SafetensorsFile::tensor(std::string_view name) const {
  const auto place = tensors_.find(name);
  require(place != tensors_.end(), kLoadSafetensors, ": ", path_.string(), " has no tensor ", excerpt(name));
  return place->second;
}

void SafetensorsFile::forget(const StoredTensor& tensor) const {
  const std::byte* data = tensor.bytes.data();
  for (const auto& file : mapped_) {
    const std::span<const std::byte> all = file->bytes();
    if (std::less_equal<>()(all.data(), data) && std::less<>()(data, all.data() + all.size()))
      file->forget(tensor.bytes);
  }
}

TensorsByName load_safetensors(const fs::path& path) {
  const SafetensorsFile file(path);
  TensorsByName tensors;
  for (const auto& [name, stored] : file.tensors()) tensors.emplace(name, load(stored));
  return tensors;
}

Checkpoint detail::checkpoint_of(const SafetensorsFile& file, const std::string& section) {
  Checkpoint checkpoint;
  checkpoint.source = file.path().string();
  const std::shared_ptr<void> keeper = std::make_shared<SafetensorsFile>(file);
  for (const auto& [name, stored] : file.tensors())
    checkpoint.tensors.emplace(section + "/" + name, viewed(stored, keeper));
  return checkpoint;
}

}  // namespace heed

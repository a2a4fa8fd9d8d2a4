// HDF5 in memory as a checkpoint.
#include <algorithm>
#include <cstring>
#include <heed/data/checkpoint_handle.hpp>
#include <heed/data/checkpoint_hdf5.hpp>

namespace heed::detail {
namespace {

// HDF5's memory driver copies the image that it is given up to three times, unless these callbacks say that each copy
// is the image itself. udata is the image.
void* image_malloc(std::size_t, H5FD_file_image_op_t, void* image) { return image; }
void* image_memcpy(void* to, const void*, std::size_t, H5FD_file_image_op_t, void*) { return to; }
void* image_realloc(void*, std::size_t, H5FD_file_image_op_t, void*) { return nullptr; }
herr_t image_free(void*, H5FD_file_image_op_t, void*) { return 0; }
void* udata_copy(void* image) { return image; }
herr_t udata_free(void*) { return 0; }

herr_t collect_name(hid_t, const char* name, const H5L_info_t* info, void* list) noexcept try {
  // Soft and external links are listed as empty: they are refused.
  static_cast<std::vector<std::string>*>(list)->push_back(info->type == H5L_TYPE_HARD ? name : "");
  return 0;
} catch (...) {
  return -1;
}

class Reader {
 public:
  explicit Reader(Checkpoint& checkpoint) : checkpoint_(checkpoint) {}

  // All that is in a group; path is empty for the root, else it ends in a slash.
  void read_group(hid_t group, const std::string& path, int depth = 0) {
    constexpr int kDeepest = 16;
    std::vector<std::string> names;
    const bool read =
        depth < kDeepest && H5Literate(group, H5_INDEX_NAME, H5_ITER_INC, nullptr, collect_name, &names) >= 0;
    require(read, in(), "the group /", path, " cannot be listed");
    for (const std::string& name : names) {
      require(!name.empty(), in(), "/", path, " has a link to elsewhere; all must lie in the file itself");
      const Handle object =
          owned(H5Oopen(group, name.c_str(), H5P_DEFAULT), H5Oclose, in(), "/", path, name, " cannot be opened");
      const H5I_type_t type = H5Iget_type(object);
      require(type == H5I_GROUP || type == H5I_DATASET, in(), "/", path, name, " is neither a group nor a data set");
      if (type == H5I_GROUP) {
        read_group(object, path + name + "/", depth + 1);
      } else if (path.empty()) {
        read_root(object, name);
      } else {
        checkpoint_.tensors.emplace(path + name, read_tensor(object, path + name));
      }
    }
  }

 private:
  Checkpoint& checkpoint_;
  Handle bools_ = bool_type();
  Handle text_ = text_type();

  std::string in() const { return "load_checkpoint: " + checkpoint_.source + ": "; }

  std::vector<hsize_t> sizes_of(hid_t dataset, const std::string& path) const {
    const Handle space = owned(H5Dget_space(dataset), H5Sclose, in(), "/", path, " has no shape");
    require(H5Sget_simple_extent_type(space) != H5S_NULL, in(), "/", path, " has no shape");
    const int rank = H5Sget_simple_extent_ndims(space);
    require(rank >= 0, in(), "/", path, " has no shape");
    std::vector<hsize_t> sizes(static_cast<std::size_t>(rank));
    if (rank > 0) H5Sget_simple_extent_dims(space, sizes.data(), nullptr);
    return sizes;
  }

  void read(hid_t dataset, hid_t type, void* to, const std::string& path) const {
    require(H5Dread(dataset, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, to) >= 0, in(), "/", path, " cannot be read");
  }

  // Outside of sections: counters (whole numbers), texts (strings) and blobs (rows of bytes).
  void read_root(hid_t dataset, const std::string& name) {
    const Handle type = owned(H5Dget_type(dataset), H5Tclose, in(), "/", name, " has no type");
    const std::vector<hsize_t> sizes = sizes_of(dataset, name);
    const H5T_class_t kind = H5Tget_class(type);
    if (sizes.empty() && kind == H5T_INTEGER) {
      std::int64_t value = 0;
      const bool is_signed = H5Tget_sign(type) == H5T_SGN_2;
      read(dataset, is_signed ? H5T_NATIVE_INT64 : H5T_NATIVE_UINT64, &value, name);
      require(!is_signed || value >= 0, in(), "/", name, " is ", value, "; counters must not be negative");
      checkpoint_.counters[name] = static_cast<std::uint64_t>(value);
    } else if (sizes.empty() && kind == H5T_STRING) {
      checkpoint_.texts[name] = read_text(dataset, type, name);
    } else if (sizes.size() == 1 && kind == H5T_INTEGER && H5Tget_size(type) == 1) {
      std::string& bytes = checkpoint_.blobs[name];
      bytes.resize(static_cast<std::size_t>(sizes[0]));
      if (!bytes.empty()) read(dataset, H5T_NATIVE_UINT8, bytes.data(), name);
    } else {
      heed::fail(in(), "/", name, " is of rank ", sizes.size(), " and ", name_of_type(type),
                 "; outside of groups may stand only whole numbers, strings and rows of bytes");
    }
  }

  std::string read_text(hid_t dataset, hid_t type, const std::string& name) const {
    if (H5Tis_variable_str(type) > 0) {
      char* value = nullptr;
      read(dataset, text_, &value, name);
      const std::string text = value ? value : "";
      H5free_memory(value);
      return text;
    }
    std::string text(H5Tget_size(type), '\0');
    read(dataset, type, text.data(), name);
    text.resize(std::min(text.find('\0'), text.size()));
    return text;
  }

  static std::string name_of_type(hid_t type) {
    const std::string bits = std::to_string(8 * H5Tget_size(type));
    switch (H5Tget_class(type)) {
      case H5T_INTEGER: return (H5Tget_sign(type) == H5T_SGN_NONE ? "uint" : "int") + bits;
      case H5T_FLOAT: return "float" + bits;
      case H5T_STRING: return "a string";
      case H5T_ENUM: return "an enumeration";
      case H5T_COMPOUND: return "a compound";
      default: return "of another type";
    }
  }

  bool has_dtype(hid_t dataset, const char* wanted, const std::string& path) const {
    if (H5Aexists(dataset, "dtype") <= 0) return false;
    const Handle attribute = owned(H5Aopen(dataset, "dtype", H5P_DEFAULT), H5Aclose, in(), "/", path,
                                   ": its attribute dtype cannot be read");
    const Handle type =
        owned(H5Aget_type(attribute), H5Tclose, in(), "/", path, ": its attribute dtype cannot be read");
    const Handle space =
        owned(H5Aget_space(attribute), H5Sclose, in(), "/", path, ": its attribute dtype cannot be read");
    if (H5Tis_variable_str(type) <= 0 || H5Sget_simple_extent_npoints(space) != 1) return false;  // one is read below
    char* value = nullptr;
    // HDF5 converts ASCII or refuses to, by what it converted before: as written, it is UTF-8.
    require(H5Tget_cset(type) == H5T_CSET_UTF8 && H5Aread(attribute, text_, &value) >= 0, in(), "/", path,
            ": its attribute dtype cannot be read");
    const bool same = value && std::strcmp(value, wanted) == 0;
    H5free_memory(value);
    return same;
  }

  // The dtype of a stored tensor, and the HDF5 type to read it as.
  std::pair<DType, hid_t> types_of(hid_t dataset, const std::string& path) const {
    const Handle type = owned(H5Dget_type(dataset), H5Tclose, in(), "/", path, " has no type");
    const H5T_class_t kind = H5Tget_class(type);
    const std::size_t bytes = H5Tget_size(type);
    if (kind == H5T_FLOAT && bytes == 4) return {DType::float32, H5T_NATIVE_FLOAT};
    if (kind == H5T_FLOAT && bytes == 8) return {DType::float64, H5T_NATIVE_DOUBLE};
    if (kind == H5T_INTEGER && bytes == 4 && H5Tget_sign(type) == H5T_SGN_2) return {DType::int32, H5T_NATIVE_INT32};
    if (kind == H5T_ENUM && H5Tequal(type, bools_) > 0) return {DType::bool8, bools_};
    if (kind == H5T_INTEGER && bytes == 2 && has_dtype(dataset, "bfloat16", path))
      return {DType::bfloat16, H5T_NATIVE_UINT16};
    heed::fail(in(), "/", path, " is ", name_of_type(type),
               "; tensors must be float32, float64, int32, bool, or uint16 with the attribute dtype = bfloat16");
  }

  Tensor read_tensor(hid_t dataset, const std::string& path) const {
    const auto [dtype, type] = types_of(dataset, path);
    const std::vector<hsize_t> sizes = sizes_of(dataset, path);
    require(sizes.size() <= kMaxRank, in(), "/", path, " has ", sizes.size(), " axes; tensors have at most ", kMaxRank);
    const Shape shape(sizes.begin(), sizes.end());
    Tensor x = Tensor::empty(shape, dtype);
    if (x.numel() > 0) read(dataset, type, x.raw(), path);
    if (dtype == DType::bool8) {
      const auto* bytes = static_cast<const unsigned char*>(x.raw());
      require(std::all_of(bytes, bytes + x.numel(), [](unsigned char b) { return b <= 1; }), in(), "/", path,
              " has values that are neither true nor false");
    }
    return x;
  }
};

}  // namespace

Checkpoint parse_hdf5(unsigned char* bytes, std::size_t size, const std::string& source) {
  const Hdf5Session session;
  constexpr const char* kNoMemory = "load_checkpoint: HDF5 has no memory for its settings";
  H5FD_file_image_callbacks_t callbacks = {image_malloc, image_memcpy, image_realloc, image_free,
                                           udata_copy,   udata_free,   bytes};
  const Handle access = owned(H5Pcreate(H5P_FILE_ACCESS), H5Pclose, kNoMemory);
  require(H5Pset_fapl_core(access, 1 << 16, false) >= 0 && H5Pset_fclose_degree(access, H5F_CLOSE_STRONG) >= 0 &&
              H5Pset_file_image_callbacks(access, &callbacks) >= 0 && H5Pset_file_image(access, bytes, size) >= 0,
          kNoMemory);
  Checkpoint checkpoint;
  checkpoint.source = source;
  const Handle file =
      owned(H5Fopen(name_in_memory().c_str(), H5F_ACC_RDONLY, access), H5Fclose, "load_checkpoint: ", source,
            " is sealed, but what it seals is not an HDF5 file with a user block of 512 bytes");
  Reader(checkpoint).read_group(file, "");
  return checkpoint;
}

std::size_t open_hdf5_handles() {
  const Hdf5Session session;
  std::size_t count = 0;
  for (H5I_type_t type : {H5I_FILE, H5I_GROUP, H5I_DATATYPE, H5I_DATASPACE, H5I_DATASET, H5I_ATTR, H5I_GENPROP_LST}) {
    hsize_t members = 0;
    if (H5Inmembers(type, &members) >= 0) count += static_cast<std::size_t>(members);
  }
  return count;
}

}  // namespace heed::detail

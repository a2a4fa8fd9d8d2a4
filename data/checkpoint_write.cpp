// Builds the HDF5 part of a checkpoint file: HDF5 writes its structures and the small values, and reserves places for
// the values of large tensors.
#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <heed/data/detail/checkpoint_driver.hpp>
#include <heed/data/detail/checkpoint_handle.hpp>
#include <heed/data/detail/checkpoint_hdf5.hpp>
#include <map>
#include <set>

namespace heed::detail {
namespace {

// Throws Error if the system lacks memory for HDF5. HDF5 1.10 crashes, for example in H5Fcreate(), when an allocation
// fails. Its caches take some megabytes, and texts are copied.
void check_room(const Checkpoint& checkpoint) {
  std::size_t bytes = std::size_t{8} << 20;
  for (const auto* map : {&checkpoint.texts, &checkpoint.blobs})
    for (const auto& [name, text] : *map) bytes += name.size() + 2 * text.size();
  void* const room = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  require(room != MAP_FAILED, "save_checkpoint: HDF5 needs ", bytes,
          " bytes of memory, which the system does not have");
  ::munmap(room, bytes);
}

constexpr const char* kNoMemory = "save_checkpoint: HDF5 has no memory for its settings";
constexpr std::size_t kLarge = std::size_t{1} << 16;  // values of at least this many bytes are not copied

// Properties without times, so that the bytes are a function of the content.
Handle creation(hid_t kind) {
  Handle list = owned(H5Pcreate(kind), H5Pclose, kNoMemory);
  require(H5Pset_obj_track_times(list, false) >= 0, kNoMemory);
  return list;
}

// The names in each group, by the path of the group, which is empty for the file itself.
using Groups = std::map<std::string, std::set<std::string>>;

Groups groups_of(const Checkpoint& checkpoint) {
  Groups groups = {{"", {}}};
  const auto add = [&](const auto& entries) {
    for (const auto& entry : entries)
      for (std::string path = entry.first; !path.empty();) {  // the entry, then each group that contains it
        const std::size_t name = path.rfind('/') + 1;
        const std::string group = path.substr(0, std::max<std::size_t>(name, 1) - 1);
        groups[group].insert(path.substr(name));
        path = group;
      }
  };
  add(checkpoint.counters), add(checkpoint.texts), add(checkpoint.blobs);
  add(checkpoint.tensors), add(checkpoint.late);
  return groups;
}

// Properties of a group that holds all its links in its header. By default, HDF5 stores more than 8 links in a fractal
// heap. A header has at most 65,535.
Handle group_creation(hid_t kind, const std::set<std::string>& names) {
  constexpr std::size_t kMaxLinks = 65535;
  std::size_t characters = 0;
  for (const std::string& name : names) characters += name.size();
  const std::size_t per_name = characters / std::max<std::size_t>(names.size(), 1) + 2;  // and a byte for the encoding
  Handle list = creation(kind);
  require(H5Pset_link_phase_change(list, kMaxLinks, kMaxLinks) >= 0 &&
              H5Pset_est_link_info(list, static_cast<unsigned>(std::min(names.size(), kMaxLinks)),
                                   static_cast<unsigned>(std::min(per_name, kMaxLinks))) >= 0,
          kNoMemory);
  return list;
}

Handle link_creation() {
  Handle list = owned(H5Pcreate(H5P_LINK_CREATE), H5Pclose, kNoMemory);
  require(H5Pset_char_encoding(list, H5T_CSET_UTF8) >= 0, kNoMemory);
  return list;
}

hid_t stored_type(DType type, hid_t bools) {
  switch (type) {
    case DType::float32: return H5T_IEEE_F32LE;
    case DType::float64: return H5T_IEEE_F64LE;
    case DType::bfloat16: return H5T_STD_U16LE;
    case DType::int32: return H5T_STD_I32LE;
    case DType::bool8: return bools;
    default: break;
  }
  return H5T_IEEE_F32LE;
}

// Properties for data sets whose place in the file is reserved at creation and not written.
Handle placed_creation() {
  Handle list = creation(H5P_DATASET_CREATE);
  require(H5Pset_alloc_time(list, H5D_ALLOC_TIME_EARLY) >= 0 && H5Pset_fill_time(list, H5D_FILL_TIME_NEVER) >= 0,
          kNoMemory);
  return list;
}

// Values for which HDF5 has reserved a place in the file.
struct PlacedValues {
  std::uint64_t at;
  std::size_t bytes;
  std::function<Tensor()> values;
};

std::function<Tensor()> values_of(const std::string& path, const Checkpoint::Late& late) {
  return [path, late] {
    const Tensor x = late.values();
    require(x.defined() && x.shape() == late.shape && x.dtype() == late.dtype, "save_checkpoint: the values of ", path,
            " are ", x, "; they must be ", late.shape, " ", late.dtype);
    return x;
  };
}

// Adds entries to an open file. Names must have passed check_names().
class Writer {
 public:
  explicit Writer(hid_t file) : file_(file) {}

  std::vector<PlacedValues> placed;

  void add_group(const std::string& path, const std::set<std::string>& names) {
    const Handle list = group_creation(H5P_GROUP_CREATE, names);
    owned(H5Gcreate2(file_, path.c_str(), link_creation_, list, H5P_DEFAULT), H5Gclose,
          "save_checkpoint: HDF5 cannot create the section ", path, "; is the memory full?");
  }

  void add_attribute(hid_t object, const char* name, const std::string& text) {
    const Handle space = owned(H5Screate(H5S_SCALAR), H5Sclose, kNoMemory);
    const Handle made = owned(H5Acreate2(object, name, text_, space, H5P_DEFAULT, H5P_DEFAULT), H5Aclose,
                              "save_checkpoint: HDF5 cannot create the attribute ", name);
    const char* value = text.c_str();
    require(H5Awrite(made, text_, &value) >= 0, "save_checkpoint: HDF5 cannot write the attribute ", name);
  }

  void add_tensor(const std::string& path, const Checkpoint::Late& x) {
    require(!is_quantized(x.dtype), "save_checkpoint: ", path, " is ", x.dtype,
            ", and checkpoints have no quantized values; save the model as a GGUF file, or convert it with ",
            "to(model, DType::float32)");
    const std::vector<hsize_t> sizes(x.shape.begin(), x.shape.end());
    const std::size_t bytes = static_cast<std::size_t>(x.shape.numel()) * size_of(x.dtype);
    const bool large = bytes >= kLarge;
    const Handle made = large ? make(path, stored_type(x.dtype, bools_), sizes, placed_creation_)
                              : add(path, stored_type(x.dtype, bools_), sizes, values_of(path, x)().dense().raw());
    if (large) {
      const haddr_t at = H5Dget_offset(made);
      require(at != HADDR_UNDEF, "save_checkpoint: HDF5 cannot allocate ", path, "; is the memory full?");
      placed.push_back({at, bytes, values_of(path, x)});
    }
    if (x.dtype == DType::bfloat16) add_attribute(made, "dtype", std::string(name_of(x.dtype)));
  }

  void add_text(const std::string& name, const std::string& text) {
    const char* value = text.c_str();
    add(name, text_, {}, &value);
  }

  Handle add(const std::string& path, hid_t type, const std::vector<hsize_t>& sizes, const void* values) {
    Handle made = make(path, type, sizes, dataset_creation_);
    const bool empty = std::find(sizes.begin(), sizes.end(), hsize_t{0}) != sizes.end();
    // The values in memory have the format of the file: little-endian (asserted in checkpoint_file.cpp), bools as
    // bytes.
    require(empty || H5Dwrite(made, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, values) >= 0,
            "save_checkpoint: HDF5 cannot write ", path, "; is the memory full?");
    return made;
  }

 private:
  hid_t file_;
  Handle dataset_creation_ = creation(H5P_DATASET_CREATE), placed_creation_ = placed_creation();
  Handle link_creation_ = link_creation();
  Handle bools_ = bool_type();
  Handle text_ = text_type();

  Handle make(const std::string& path, hid_t type, const std::vector<hsize_t>& sizes, hid_t list) {
    const bool scalar = sizes.empty();
    const Handle space =
        owned(scalar ? H5Screate(H5S_SCALAR) : H5Screate_simple(static_cast<int>(sizes.size()), sizes.data(), nullptr),
              H5Sclose, kNoMemory);
    return owned(H5Dcreate2(file_, path.c_str(), type, space, link_creation_, list, H5P_DEFAULT), H5Dclose,
                 "save_checkpoint: HDF5 cannot create ", path, "; is the memory full?");
  }
};

// The end of the file, from the superblock of version 2.
std::size_t end_of_file(const SparseFile& file) {
  unsigned char superblock[48];
  file.read(kUserBlock, superblock, sizeof superblock);
  std::uint64_t end = 0;
  std::memcpy(&end, superblock + 28, sizeof end);
  require(superblock[8] == 2 && end > kUserBlock, "save_checkpoint: this version of HDF5 writes an unknown superblock");
  return static_cast<std::size_t>(end);
}

// Writes the content of a checkpoint with these groups. Returns the tensors' values, which are not in the file yet.
std::vector<PlacedValues> write_content(const Handle& file, const Checkpoint& checkpoint, const Groups& groups) {
  Writer writer(file);
  for (const auto& [path, names] : groups)
    if (!path.empty()) writer.add_group(path, names);
  writer.add_attribute(file, "format", "heed checkpoint");
  for (const auto& [name, value] : checkpoint.counters) writer.add(name, H5T_STD_U64LE, {}, &value);
  for (const auto& [name, text] : checkpoint.texts) writer.add_text(name, text);
  for (const auto& [name, blob] : checkpoint.blobs) writer.add(name, H5T_STD_U8LE, {blob.size()}, blob.data());
  auto tensors = checkpoint.late;  // and those that have their values: all tensors in the order of names
  for (const auto& [path, x] : checkpoint.tensors) {
    require(x.defined(), "save_checkpoint: the tensor ", path, " is undefined; it must have values");
    tensors[path] = {x.shape(), x.dtype(), [values = x.detach()] { return values; }};
  }
  for (const auto& [path, x] : tensors) writer.add_tensor(path, x);
  return std::move(writer.placed);
}

}  // namespace

Hdf5Image::Hdf5Image(const Checkpoint& checkpoint) {
  check_names("save_checkpoint", checkpoint);
  check_room(checkpoint);
  const Hdf5Session session;
  SparseFile content;
  std::vector<PlacedValues> placed;
  {
    const Handle access = access_to(content);
    require(H5Pset_fclose_degree(access, H5F_CLOSE_STRONG) >= 0 && H5Pset_alignment(access, kLarge, 64) >= 0 &&
                H5Pset_libver_bounds(access, H5F_LIBVER_V18, H5F_LIBVER_V18) >= 0,
            kNoMemory);
    const Groups groups = groups_of(checkpoint);
    const Handle create = group_creation(H5P_FILE_CREATE, groups.at(""));
    require(H5Pset_userblock(create, kUserBlock) >= 0, kNoMemory);
    const Handle file = owned(H5Fcreate(name_in_memory().c_str(), H5F_ACC_TRUNC, create, access), H5Fclose,
                              "save_checkpoint: HDF5 cannot create a file in memory");
    placed = write_content(file, checkpoint, groups);
    require(H5Fflush(file, H5F_SCOPE_GLOBAL) >= 0, "save_checkpoint: HDF5 cannot finish the file; is the memory full?");
  }
  size_ = end_of_file(content);
  std::sort(placed.begin(), placed.end(), [](const auto& a, const auto& b) { return a.at < b.at; });
  std::uint64_t done = 0;
  const auto add_structure = [&](std::uint64_t end) {
    if (end == done) return;
    std::string bytes(static_cast<std::size_t>(end - done), '\0');
    content.read(done, reinterpret_cast<unsigned char*>(bytes.data()), bytes.size());
    pieces_.push_back({std::move(bytes), {}});
  };
  for (PlacedValues& p : placed) {
    add_structure(p.at);
    done = p.at + p.bytes;
    pieces_.push_back({{}, std::move(p.values)});
  }
  add_structure(size_);
}

}  // namespace heed::detail

// HDF5 handles that close themselves. Included only by checkpoint_*.cpp.
#pragma once
#include <hdf5.h>

#include <atomic>
#include <cstdint>
#include <heed/core/check.hpp>
#include <mutex>
#include <string>
#include <utility>

namespace heed::detail {

// An id and the function that closes it.
class Handle {
 public:
  using Close = herr_t (*)(hid_t);

  Handle(hid_t id, Close close) : id_(id), close_(close) {}
  Handle(Handle&& other) noexcept : id_(std::exchange(other.id_, -1)), close_(other.close_) {}
  ~Handle() {
    if (id_ >= 0) close_(id_);
  }

  operator hid_t() const { return id_; }

 private:
  hid_t id_;
  Close close_;
};

// Wraps an id: Handle f = owned(H5Fopen(...), H5Fclose, "what went wrong: ", name). Throws Error with the message if
// the id is invalid.
template <class... Parts>
Handle owned(hid_t id, Handle::Close close, const Parts&... parts) {
  require(id >= 0, parts...);
  return Handle(id, close);
}

// Silences HDF5's error printing and serializes access to HDF5, which may be built without locks.
class Hdf5Session {
 public:
  Hdf5Session() : lock_(mutex()) {
    H5Eget_auto2(H5E_DEFAULT, &print_, &print_data_);
    H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr);
  }
  ~Hdf5Session() { H5Eset_auto2(H5E_DEFAULT, print_, print_data_); }
  Hdf5Session(const Hdf5Session&) = delete;
  Hdf5Session& operator=(const Hdf5Session&) = delete;

 private:
  static std::recursive_mutex& mutex() {
    static std::recursive_mutex m;
    return m;
  }

  std::lock_guard<std::recursive_mutex> lock_;
  H5E_auto2_t print_ = nullptr;
  void* print_data_ = nullptr;
};

// A unique name for a file in memory. HDF5 treats two open files of the same name as one file and checks whether the
// file exists on disk; no file can have this name.
inline std::string name_in_memory() {
  static std::atomic<std::uint64_t> count{0};
  return "/dev/null/checkpoint" + std::to_string(count++);
}

// The bool type of h5py: an enumeration of one byte.
inline Handle bool_type() {
  Handle type = owned(H5Tenum_create(H5T_STD_I8LE), H5Tclose, "checkpoint: HDF5 has no memory for a type");
  const signed char no = 0, yes = 1;
  require(H5Tenum_insert(type, "FALSE", &no) >= 0 && H5Tenum_insert(type, "TRUE", &yes) >= 0,
          "checkpoint: HDF5 has no memory for a type");
  return type;
}

inline Handle text_type() {
  Handle type = owned(H5Tcopy(H5T_C_S1), H5Tclose, "checkpoint: HDF5 has no memory for a type");
  require(H5Tset_size(type, H5T_VARIABLE) >= 0 && H5Tset_cset(type, H5T_CSET_UTF8) >= 0,
          "checkpoint: HDF5 has no memory for a type");
  return type;
}

}  // namespace heed::detail

// HDF5 handles that close themselves. Only checkpoint_*.cpp include this.
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
  Handle& operator=(Handle&& other) noexcept {
    std::swap(id_, other.id_);
    std::swap(close_, other.close_);
    return *this;
  }
  ~Handle() {
    if (id_ >= 0) close_(id_);
  }

  operator hid_t() const { return id_; }

 private:
  hid_t id_;
  Close close_;
};

// An id that must be valid: Handle f = owned(H5Fopen(...), H5Fclose, "what went wrong: ", name).
template <class... Parts>
Handle owned(hid_t id, Handle::Close close, const Parts&... parts) {
  require(id >= 0, parts...);
  return Handle(id, close);
}

// HDF5 as a library should be: silent, and used by one thread at a time even where it was built without locks.
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

// A name for a file in memory. HDF5 takes two open files of one name for the same file, and looks on disk whether there
// is such a file: there cannot be.
inline std::string name_in_memory() {
  static std::atomic<std::uint64_t> count{0};
  return "/dev/null/checkpoint" + std::to_string(count++);
}

// h5py's bool: an enumeration of one byte.
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

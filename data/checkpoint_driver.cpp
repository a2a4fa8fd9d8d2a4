// A driver of HDF5's virtual file layer for SparseFile. Documentation: "HDF5 Virtual File Layer" (The HDF Group).
#include <algorithm>
#include <cstring>
#include <heed/data/detail/checkpoint_driver.hpp>
#include <new>

namespace heed::detail {

template <class Use>
void SparseFile::each_page(std::uint64_t at, std::size_t count, const Use& use) {
  for (std::size_t done = 0; done < count;) {
    const std::size_t within = static_cast<std::size_t>((at + done) % kPage);
    const std::size_t part = std::min(count - done, kPage - within);
    use((at + done) / kPage, within, done, part);
    done += part;
  }
}

void SparseFile::write(std::uint64_t at, const unsigned char* bytes, std::size_t count) {
  each_page(at, count, [&](std::uint64_t page, std::size_t within, std::size_t from, std::size_t part) {
    std::memcpy(pages_[page].data() + within, bytes + from, part);  // a new page is all zeros
  });
}

void SparseFile::read(std::uint64_t at, unsigned char* bytes, std::size_t count) const {
  each_page(at, count, [&](std::uint64_t page, std::size_t within, std::size_t to, std::size_t part) {
    const auto place = pages_.find(page);
    if (place == pages_.end())
      std::memset(bytes + to, 0, part);
    else
      std::memcpy(bytes + to, place->second.data() + within, part);
  });
}

namespace {

// The state of an open file; HDF5's own part is first.
struct OpenFile {
  H5FD_t own = {};
  SparseFile* content = nullptr;
  haddr_t allocated = 0, written = 0;  // end addresses
};

OpenFile& of(H5FD_t* file) { return *reinterpret_cast<OpenFile*>(file); }
const OpenFile& of(const H5FD_t* file) { return *reinterpret_cast<const OpenFile*>(file); }

H5FD_t* open(const char*, unsigned, hid_t access, haddr_t) {
  const void* info = H5Pget_driver_info(access);
  auto* file = info == nullptr ? nullptr : new (std::nothrow) OpenFile;
  if (file == nullptr) return nullptr;
  file->content = *static_cast<SparseFile* const*>(info);
  return &file->own;
}

herr_t close(H5FD_t* file) {
  delete &of(file);
  return 0;
}

// As in HDF5's core driver, so that files get the same layout.
herr_t query(const H5FD_t*, unsigned long* flags) {
  *flags = H5FD_FEAT_AGGREGATE_METADATA | H5FD_FEAT_ACCUMULATE_METADATA | H5FD_FEAT_DATA_SIEVE |
           H5FD_FEAT_AGGREGATE_SMALLDATA;
  return 0;
}

haddr_t end_of_allocated(const H5FD_t* file, H5FD_mem_t) { return of(file).allocated; }
haddr_t end_of_written(const H5FD_t* file, H5FD_mem_t) { return of(file).written; }

herr_t set_end_of_allocated(H5FD_t* file, H5FD_mem_t, haddr_t end) {
  of(file).allocated = end;
  return 0;
}

herr_t read(H5FD_t* file, H5FD_mem_t, hid_t, haddr_t at, size_t size, void* buffer) {
  of(file).content->read(at, static_cast<unsigned char*>(buffer), size);
  return 0;
}

herr_t write(H5FD_t* file, H5FD_mem_t, hid_t, haddr_t at, size_t size, const void* buffer) {
  try {  // no exception may pass through HDF5
    of(file).content->write(at, static_cast<const unsigned char*>(buffer), size);
  } catch (const std::bad_alloc&) {
    return -1;
  }
  of(file).written = std::max<haddr_t>(of(file).written, at + size);
  return 0;
}

herr_t truncate(H5FD_t* file, hid_t, hbool_t) {
  of(file).written = of(file).allocated;
  return 0;
}

H5FD_class_t driver_class() {
  H5FD_class_t c = {};
#ifdef H5FD_CLASS_VERSION
  c.version = H5FD_CLASS_VERSION;                  // since HDF5 1.14
  c.value = static_cast<H5FD_class_value_t>(512);  // one of the values reserved for testing and private use
#endif
  c.name = "heed_sparse";
  c.maxaddr = HADDR_MAX;
  c.fc_degree = H5F_CLOSE_STRONG;
  c.fapl_size = sizeof(SparseFile*);  // HDF5 copies it as bytes
  c.open = open, c.close = close, c.query = query;
  c.get_eoa = end_of_allocated, c.set_eoa = set_end_of_allocated, c.get_eof = end_of_written;
  c.read = read, c.write = write, c.truncate = truncate;
  constexpr H5FD_mem_t kAll[] = H5FD_FLMAP_DICHOTOMY;
  static_assert(sizeof kAll == sizeof c.fl_map);
  std::copy(std::begin(kAll), std::end(kAll), c.fl_map);
  return c;
}

}  // namespace

Handle access_to(SparseFile& content) {
  constexpr const char* kNoMemory = "save_checkpoint: HDF5 has no memory for its settings";
  static const H5FD_class_t kClass = driver_class();
  const Handle driver = owned(H5FDregister(&kClass), H5FDunregister, kNoMemory);  // kept by the property list
  Handle access = owned(H5Pcreate(H5P_FILE_ACCESS), H5Pclose, kNoMemory);
  SparseFile* const info = &content;
  require(H5Pset_driver(access, driver, &info) >= 0, kNoMemory);
  return access;
}

}  // namespace heed::detail

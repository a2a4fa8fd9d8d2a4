// The file: 512 bytes of ours, then HDF5. docs/checkpoint_format.md is the specification.
#include <bit>
#include <cstring>
#include <heed/core/detail/profiler.hpp>
#include <heed/data/checkpoint.hpp>
#include <heed/data/detail/checkpoint_hdf5.hpp>
#include <heed/data/detail/disk.hpp>
#include <heed/data/text.hpp>
#include <iomanip>
#include <new>
#include <xxhash.h>

namespace heed {
namespace {

constexpr unsigned char kMagic[8] = {0x89, 'h', 'e', 'e', 'd', '\r', '\n', 0x1a};
constexpr std::uint32_t kVersion = 1;
constexpr std::size_t kUserBlock = detail::kUserBlock;

// The first bytes of the file; zeros follow up to kUserBlock. hash is of the whole file with these eight bytes zero.
struct SealHeader {
  unsigned char magic[8];
  std::uint32_t version;
  std::uint32_t user_block;
  std::uint64_t size;  // of the whole file
  std::uint64_t hash;  // XXH3, 64 bits
};
static_assert(sizeof(SealHeader) == 32 && std::endian::native == std::endian::little, "the file is little-endian");

SealHeader header_of(const unsigned char* bytes) {
  SealHeader h;
  std::memcpy(&h, bytes, sizeof h);
  return h;
}

// Fills the user block of a finished file.
void seal(unsigned char* bytes, std::size_t size) {
  SealHeader h = {};
  std::memcpy(h.magic, kMagic, sizeof kMagic);
  h.version = kVersion;
  h.user_block = kUserBlock;
  h.size = size;
  std::memcpy(bytes, &h, sizeof h);
  h.hash = XXH3_64bits(bytes, size);
  std::memcpy(bytes, &h, sizeof h);
}

std::string hex(std::uint64_t x) {
  std::ostringstream out;
  out << std::hex << std::setfill('0') << std::setw(16) << x;
  return out.str();
}

// What can be told from the first `count` bytes of a file of `size`.
void check_header(const unsigned char* bytes, std::size_t count, std::size_t size, const std::string& name) {
  constexpr unsigned char kHdf5[8] = {0x89, 'H', 'D', 'F', '\r', '\n', 0x1a, '\n'};
  const char* op = "load_checkpoint: ";
  require(size > 0, op, name, " is empty; it must be a heed checkpoint");
  const bool hdf5 = (count >= 8 && std::memcmp(bytes, kHdf5, 8) == 0) ||
                    (count >= kUserBlock + 8 && std::memcmp(bytes + kUserBlock, kHdf5, 8) == 0);
  const bool ours = std::memcmp(bytes, kMagic, std::min(count, sizeof kMagic)) == 0;
  require(ours || !hdf5, op, name,
          " is HDF5 but not sealed as a heed checkpoint; docs/checkpoint_format.md has the script that seals it");
  require(ours, op, name, " is not a heed checkpoint");
  require(count >= kUserBlock, op, name, " is truncated: it ends after ", size, " bytes, within its header");
  const SealHeader h = header_of(bytes);
  require(h.version <= kVersion, op, name, " is of format ", h.version, "; this heed reads formats up to ", kVersion,
          ", a newer one is needed");
  require(h.version >= 1 && h.user_block == kUserBlock, op, name, " is damaged: its header makes no sense");
  require(size >= h.size, op, name, " is truncated: it has ", size, " of ", h.size, " bytes");
  require(size == h.size, op, name, " is damaged: it has ", size, " bytes and must have ", h.size);
}

}  // namespace

void save_checkpoint(const std::filesystem::path& path, const Checkpoint& checkpoint) {
  const detail::ProfileScope scope("checkpoint");
  const detail::Hdf5Image image(checkpoint);
  seal(image.bytes(), image.size());
  detail::replace_file("save_checkpoint", path, image.bytes(), image.size());
}

Checkpoint load_checkpoint(const std::filesystem::path& path) {
  const std::string name = printable(path.string());
  detail::InputFile file("load_checkpoint", path);
  unsigned char first[kUserBlock + 8] = {};
  const std::size_t count = std::min(sizeof first, file.size());
  file.read(first, count);
  check_header(first, count, file.size(), name);

  const std::unique_ptr<unsigned char[]> bytes(new (std::nothrow) unsigned char[file.size()]);
  require(bytes != nullptr, "load_checkpoint: ", name, " has ", file.size(), " bytes, and there is no memory for them");
  std::memcpy(bytes.get(), first, count);
  file.read(bytes.get() + count, file.size() - count);
  const SealHeader h = header_of(first);
  std::memset(bytes.get() + offsetof(SealHeader, hash), 0, sizeof h.hash);
  const std::uint64_t hash = XXH3_64bits(bytes.get(), file.size());
  require(hash == h.hash, "load_checkpoint: ", name, " is damaged: its content has the hash ", hex(hash), ", not ",
          hex(h.hash));
  return detail::parse_hdf5({bytes.get(), file.size()}, name);
}

}  // namespace heed

// The checkpoint file: a header of 512 bytes, then HDF5. docs/checkpoint_format.md is the specification.
#include <sys/mman.h>

#include <bit>
#include <cstdlib>
#include <cstring>
#include <heed/core/parallel.hpp>
#include <heed/core/profiler.hpp>
#include <heed/data/checkpoint.hpp>
#include <heed/data/detail/checkpoint_hdf5.hpp>
#include <heed/data/detail/content_hash.hpp>
#include <heed/data/detail/disk.hpp>
#include <heed/data/text.hpp>
#include <memory>

namespace heed {
namespace {

constexpr unsigned char kMagic[8] = {0x89, 'h', 'e', 'e', 'd', '\r', '\n', 0x1a};
constexpr std::uint32_t kVersion = 1;
constexpr std::size_t kUserBlock = detail::kUserBlock;

// The first bytes of the file, followed by zeros up to kUserBlock. The hash is of the whole file with these eight bytes
// set to zero.
struct SealHeader {
  unsigned char magic[8];
  std::uint32_t version;
  std::uint32_t user_block;
  std::uint64_t size;  // of the whole file
  std::uint64_t hash;  // XXH3, 64 bits
};
static_assert(sizeof(SealHeader) == 32 && std::endian::native == std::endian::little, "the file is little-endian");

// The header of a file of `size` bytes, of which the first `count` are given. Throws Error unless they can begin a
// checkpoint of this size.
SealHeader checked_header(const unsigned char* bytes, std::size_t count, std::size_t size, const std::string& name) {
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
  SealHeader h;
  std::memcpy(&h, bytes, sizeof h);
  require(h.version <= kVersion, op, name, " has format ", h.version, ", but this version of heed reads formats up to ",
          kVersion, "; use a newer version");
  require(h.version >= 1 && h.user_block == kUserBlock, op, name, " is damaged: its header is invalid");
  require(size >= h.size, op, name, " is truncated: it has ", size, " of ", h.size, " bytes");
  require(size == h.size, op, name, " is damaged: it has ", size, " bytes; it must have ", h.size);
  return h;
}

// Memory for a file, in huge pages if the file is large. Null if there is not enough.
std::shared_ptr<unsigned char> memory_for(std::size_t bytes) {
  constexpr std::size_t kHugePage = std::size_t{2} << 20;
  void* memory = nullptr;
  if (posix_memalign(&memory, bytes < kHugePage ? 64 : kHugePage, bytes) != 0) return nullptr;
  if (bytes >= kHugePage) madvise(memory, bytes, MADV_HUGEPAGE);
  return {static_cast<unsigned char*>(memory), std::free};
}

// The hash of a file, begun with its user block, in which the bytes of the hash are set to zero.
detail::ContentHash hash_after(const unsigned char* user_block) {
  unsigned char without_hash[kUserBlock];
  std::memcpy(without_hash, user_block, kUserBlock);
  std::memset(without_hash + offsetof(SealHeader, hash), 0, sizeof(SealHeader::hash));
  detail::ContentHash hash;
  hash.add(without_hash, kUserBlock);
  return hash;
}

constexpr std::size_t kPiece = std::size_t{2} << 20, kStretch = 16 * kPiece;  // a stretch stays in the last-level cache

// Reads the file after its user block, which `to` already holds, on all threads. Hashes each stretch while the next one
// is read.
std::uint64_t read_and_hash(const detail::InputFile& file, unsigned char* to) {
  const std::size_t size = file.size();
  detail::ContentHash hash = hash_after(to);
  for (std::size_t hashed = kUserBlock, begin = kUserBlock; hashed < size;) {
    const std::size_t end = std::min(begin + kStretch, size);
    const std::size_t pieces = (end - begin + kPiece - 1) / kPiece;
    parallel_for_each(1 + static_cast<Index>(pieces), 1, [&](Index i) {
      const std::size_t at = begin + static_cast<std::size_t>(i - 1) * kPiece;
      if (i == 0)
        hash.add(to + hashed, begin - hashed);
      else
        file.read_at(at, to + at, std::min(kPiece, end - at));
    });
    hashed = begin, begin = end;
  }
  return hash.value();
}

// Appends the bytes to the file and hashes them at the same time, without the first `hashed` bytes.
void write_and_hash(detail::NewFile& file, detail::ContentHash& hash, const unsigned char* bytes, std::size_t count,
                    std::size_t hashed) {
  for (std::size_t begin = 0; begin < count; begin += kStretch) {
    const std::size_t end = std::min(begin + kStretch, count);
    parallel_for_each(2, end - begin < kPiece ? 2 : 1, [&](Index i) {
      if (i == 0)
        file.write(bytes + begin, end - begin);
      else
        hash.add(bytes + std::max(begin, hashed), end - std::max(begin, hashed));
    });
  }
}

}  // namespace

// The header contains the hash of the whole file, so it is written last.
void save_checkpoint(const std::filesystem::path& path, const Checkpoint& checkpoint) {
  const detail::ProfileScope scope("checkpoint");
  detail::Hdf5Image image(checkpoint);
  SealHeader header = {};
  std::memcpy(header.magic, kMagic, sizeof kMagic);
  header.version = kVersion;
  header.user_block = kUserBlock;
  header.size = image.size();
  std::memcpy(image.user_block(), &header, sizeof header);

  detail::NewFile file("save_checkpoint", path, image.size());
  detail::ContentHash hash = hash_after(image.user_block());
  std::size_t done = 0;
  image.for_each([&](const unsigned char* bytes, std::size_t count) {
    const std::size_t hashed = done == 0 ? kUserBlock : 0;
    write_and_hash(file, hash, bytes, count, hashed);
    done += count;
  });
  header.hash = hash.value();
  file.overwrite(&header, sizeof header);
  file.finish();
}

namespace {

constexpr std::size_t kFirstBytes = kUserBlock + 8;

// Reads and checks the first bytes of a file.
SealHeader read_header(const detail::InputFile& file, const std::string& name, unsigned char* first) {
  const std::size_t count = std::min(kFirstBytes, file.size());
  file.read_at(0, first, count);
  return checked_header(first, count, file.size(), name);
}

}  // namespace

std::uint64_t detail::hash_of_checkpoint(const std::filesystem::path& path) {
  unsigned char first[kFirstBytes] = {};
  return read_header(InputFile("load_checkpoint", path), printable(path.string()), first).hash;
}

Checkpoint load_checkpoint(const std::filesystem::path& path) {
  const std::string name = printable(path.string());
  const detail::InputFile file("load_checkpoint", path);
  unsigned char first[kFirstBytes] = {};
  const SealHeader h = read_header(file, name, first);

  const std::shared_ptr<unsigned char> bytes = memory_for(file.size());
  require(bytes != nullptr, "load_checkpoint: ", name, " has ", file.size(), " bytes, and there is no memory for them");
  std::memcpy(bytes.get(), first, kUserBlock);
  const std::uint64_t hash = read_and_hash(file, bytes.get());
  require(hash == h.hash, "load_checkpoint: ", name, " is damaged: its content has the hash ", detail::hex(hash),
          ", not ", detail::hex(h.hash));
  Checkpoint c = detail::parse_hdf5(bytes, file.size(), name);
  c.hash = hash;
  return c;
}

}  // namespace heed

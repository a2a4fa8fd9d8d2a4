// Reads .npz files: a strict reader of ZIP archives (PKWARE's APPNOTE 6.3, ZIP64 included), which inflates with zlib.
//
// An archive is a sequence of members, each a header and its bytes; then a directory with an entry per member; then an
// end record, which says where the directory begins. NumPy writes ZIP64 fields in the headers of all members.
#include <zlib.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <heed/data/detail/disk.hpp>
#include <heed/data/npy.hpp>
#include <heed/data/text.hpp>
#include <heed/io/npz.hpp>
#include <new>
#include <string_view>
#include <utility>
#include <vector>

namespace heed {
namespace {
namespace zip {  // keeps these short names from other sources that are compiled as one

using Bytes = std::span<const unsigned char>;

// A file, or its bytes in memory.
struct Archive {
  std::string what;  // begins messages: "load_npz: x.npz"
  std::uint64_t size = 0;
  std::function<void(std::uint64_t at, unsigned char* to, std::size_t count)> read = {};  // within the size

  std::vector<unsigned char> bytes(std::uint64_t at, std::size_t count) const {
    std::vector<unsigned char> all(count);
    read(at, all.data(), count);
    return all;
  }
};

// A member, as its header and its entry of the directory describe it.
struct Member {
  std::string name = {};
  unsigned flags = 0, method = 0;
  std::uint64_t crc = 0;
  std::uint64_t packed = 0, size = 0;   // bytes in the file, and inflated
  std::uint64_t header = 0, begin = 0;  // offsets of its header and of its bytes
};

struct Directory {
  std::uint64_t at = 0, bytes = 0, members = 0;
};

// Signatures and lengths of the records without their texts.
constexpr std::uint64_t kHeader = 0x04034b50, kEntry = 0x02014b50, kEnd = 0x06054b50, kEnd64 = 0x06064b50,
                        kLocator = 0x07064b50;
constexpr std::size_t kHeaderBytes = 30, kEntryBytes = 46, kEndBytes = 22, kEnd64Bytes = 56, kLocatorBytes = 20;
constexpr unsigned kStored = 0, kDeflated = 8;
constexpr unsigned kEncrypted = 1 | 1 << 6 | 1 << 13, kSizesFollow = 1 << 3, kUtf8 = 1 << 11;  // flags

constexpr std::string_view kNpy = ".npy";  // ends each name

// Limits. Deflate cannot do better than 2 bits for 258 bytes.
constexpr std::uint64_t kMaxMembers = 1000000, kMaxDirectory = 1 << 28, kMaxRatio = 4 * 258, kMinLimit = 4 << 20,
                        kLimitPerByte = 64;

// The little-endian number of `width` bytes at `at`, which must be in the record.
std::uint64_t number(Bytes record, std::size_t at, std::size_t width) {
  std::uint64_t n = 0;
  for (std::size_t i = width; i-- > 0;) n = n << 8 | record[at + i];
  return n;
}

// The directory by the ZIP64 end record, whose locator is at offset `locator` of the file.
Directory zip64_directory(const Archive& f, Bytes record, std::uint64_t locator, std::uint64_t& end) {
  end = number(record, 8, 8);
  require(end <= locator && locator - end >= kEnd64Bytes, f.what, " is damaged: its ZIP64 end record is at offset ",
          end, "; it must end at its locator, at offset ", locator);
  const auto r = f.bytes(end, kEnd64Bytes);
  require(number(r, 0, 4) == kEnd64 && number(r, 4, 8) == locator - end - 12, f.what,
          " is damaged: its ZIP64 end record at offset ", end, " has a wrong signature or length");
  return {.at = number(r, 48, 8), .bytes = number(r, 40, 8), .members = number(r, 32, 8)};
}

// Finds the end record, which is at the end of the file, before a comment of at most 65535 bytes.
Directory find_directory(const Archive& f) {
  constexpr std::size_t kMaxTail = kLocatorBytes + kEndBytes + 65535;
  const auto tail = f.bytes(f.size - std::min<std::uint64_t>(f.size, kMaxTail),
                            static_cast<std::size_t>(std::min<std::uint64_t>(f.size, kMaxTail)));
  const auto ends_at = [&](std::size_t at) {
    return number(tail, at, 4) == kEnd && number(tail, at + 20, 2) == tail.size() - at - kEndBytes;
  };
  std::size_t after = tail.size() < kEndBytes ? 0 : tail.size() - kEndBytes + 1;  // one past the record's offset
  while (after > 0 && !ends_at(after - 1)) --after;
  require(after > 0, f.what, " is not a .npz file, or is truncated: it has no end record of a ZIP archive");

  const std::size_t at = after - 1;
  const Bytes record = Bytes(tail).subspan(at);
  Directory d{.at = number(record, 16, 4), .bytes = number(record, 12, 4), .members = number(record, 10, 2)};
  std::uint64_t end = f.size - tail.size() + at;
  if (at >= kLocatorBytes && number(tail, at - kLocatorBytes, 4) == kLocator)
    d = zip64_directory(f, Bytes(tail).subspan(at - kLocatorBytes), end - kLocatorBytes, end);
  require(d.bytes <= end && d.at == end - d.bytes, f.what, " is damaged: its directory has ", d.bytes,
          " bytes from offset ", d.at, "; it must end at the end record, at offset ", end);
  return d;
}

// Reads the fields that headers and entries share. They begin at offset `at` of the record.
Member shared_fields(Bytes record, std::size_t at) {
  Member m;
  m.flags = static_cast<unsigned>(number(record, at, 2));
  m.method = static_cast<unsigned>(number(record, at + 2, 2));
  m.crc = number(record, at + 8, 4);
  m.packed = number(record, at + 12, 4);
  m.size = number(record, at + 16, 4);
  return m;
}

// Reads the ZIP64 field among the extra fields of a member: 8 bytes for each number that has all bits set in 4 bytes.
// Returns false if a field is cut.
bool read_zip64(Bytes extra, Member& m) {
  while (extra.size() >= 4) {
    const std::size_t id = number(extra, 0, 2), length = number(extra, 2, 2);
    extra = extra.subspan(4);
    if (length > extra.size()) return false;
    Bytes field = extra.first(length);
    extra = extra.subspan(length);
    if (id != 1) continue;
    for (std::uint64_t* n : {&m.size, &m.packed, &m.header}) {
      if (*n != 0xffffffff) continue;
      if (field.size() < 8) return false;
      *n = number(field, 0, 8);
      field = field.subspan(8);
    }
  }
  return true;
}

std::string text_of(Bytes bytes) { return {bytes.begin(), bytes.end()}; }
std::string member_of(const Archive& f, const Member& m) { return f.what + ": member '" + excerpt(m.name) + "'"; }

// The members by the entries of the directory, which are not checked yet.
std::vector<Member> read_directory(const Archive& f, const Directory& d) {
  require(d.members <= kMaxMembers && d.bytes <= kMaxDirectory, f.what, " has a directory of ", d.members,
          " members in ", d.bytes, " bytes; it may have ", kMaxMembers, " in ", kMaxDirectory);
  const auto bytes = f.bytes(d.at, static_cast<std::size_t>(d.bytes));
  std::vector<Member> all;
  Bytes rest = bytes;
  for (std::uint64_t i = 0; i < d.members; ++i) {
    const bool begins = rest.size() >= kEntryBytes && number(rest, 0, 4) == kEntry;
    const std::size_t name = begins ? number(rest, 28, 2) : 0, extra = begins ? number(rest, 30, 2) : 0,
                      comment = begins ? number(rest, 32, 2) : 0;
    require(begins && rest.size() - kEntryBytes >= name + extra + comment, f.what, " is damaged: its directory says ",
            d.members, " members, but has ", i, " complete entries");
    Member m = shared_fields(rest, 8);
    m.header = number(rest, 42, 4);
    m.name = text_of(rest.subspan(kEntryBytes, name));
    require(read_zip64(rest.subspan(kEntryBytes + name, extra), m), member_of(f, m),
            " has an incomplete extra field in the directory");
    all.push_back(std::move(m));
    rest = rest.subspan(kEntryBytes + name + extra + comment);
  }
  require(rest.empty(), f.what, " is damaged: its directory says ", d.members, " members, but has ", rest.size(),
          " more bytes");
  return all;
}

std::string method_name(unsigned method) {
  constexpr std::pair<unsigned, const char*> kNames[] = {{1, "shrink"}, {6, "implode"}, {9, "Deflate64"},
                                                         {12, "bzip2"}, {14, "LZMA"},   {93, "Zstandard"},
                                                         {95, "XZ"},    {98, "PPMd"},   {99, "AES encryption"}};
  for (const auto& [code, name] : kNames)
    if (code == method) return name;
  return "method " + std::to_string(method);
}

// Checks what needs no byte of the member. Sizes are checked here, before anything is inflated.
void check_entry(const Archive& f, const Member& m) {
  const std::string what = member_of(f, m);
  require(m.name.ends_with(kNpy), what,
          " is not a .npy file; a .npz file has no others (save a model of PyTorch as safetensors)");
  const bool ascii = std::ranges::all_of(m.name, [](char c) { return static_cast<unsigned char>(c) < 0x80; });
  require(ascii || ((m.flags & kUtf8) != 0 && !find_invalid_utf8(m.name)), what, " has a name that is not UTF-8");
  require((m.flags & kEncrypted) == 0, what, " is encrypted; it must be stored or deflated");
  require(m.method == kStored || m.method == kDeflated, what, " is compressed by ", method_name(m.method),
          "; it must be stored or deflated");
  const bool possible = m.method == kStored ? m.size == m.packed : m.size / kMaxRatio <= m.packed;
  require(possible, what, " has ", m.packed, " bytes in the file, which cannot give its size of ", m.size, " bytes");
}

// Reads the header before the member, which must agree with its entry, and sets m.begin. The member must be between the
// offsets `from` and `to`.
void locate(const Archive& f, std::uint64_t from, std::uint64_t to, Member& m) {
  const std::string what = member_of(f, m);
  require(m.header >= from, what, " begins at offset ", m.header, "; it must not overlap the member that ends at ",
          from);
  const std::uint64_t room = m.header <= to ? to - m.header : 0;
  const auto r = room < kHeaderBytes ? std::vector<unsigned char>() : f.bytes(m.header, kHeaderBytes);
  require(!r.empty() && number(r, 0, 4) == kHeader, what, " has no header at offset ", m.header);
  const std::size_t name = number(r, 26, 2), extra = number(r, 28, 2), before = kHeaderBytes + name + extra;
  require(before <= room && m.packed <= room - before, what, " has ", m.packed, " bytes from offset ", m.header,
          "; it must end before the directory, at offset ", to);
  const auto texts = f.bytes(m.header + kHeaderBytes, name + extra);
  Member h = shared_fields(r, 6);
  require(read_zip64(Bytes(texts).subspan(name), h), what, " has an incomplete extra field in its header");
  const bool sizes = (h.flags & kSizesFollow) != 0 || (h.crc == m.crc && h.packed == m.packed && h.size == m.size);
  require(text_of(Bytes(texts).first(name)) == m.name && h.method == m.method && sizes, what,
          " has a header that differs from its entry in the directory");
  m.begin = m.header + before;
}

// The members, with all sizes and offsets checked.
std::vector<Member> checked_members(const Archive& f, std::optional<std::size_t> max_bytes) {
  const std::uint64_t limit = max_bytes ? *max_bytes : std::max(kMinLimit, f.size * kLimitPerByte);
  const Directory d = find_directory(f);
  std::vector<Member> all = read_directory(f, d);
  std::uint64_t left = limit;
  for (const Member& m : all) {
    check_entry(f, m);
    require(m.size <= left, member_of(f, m), " of ", m.size, " bytes makes the arrays larger than ", limit,
            " bytes; if the file is trusted, set max_bytes");
    left -= m.size;
  }
  std::ranges::sort(all, {}, &Member::header);
  std::uint64_t end = 0;
  for (Member& m : all) {
    locate(f, end, d.at, m);
    end = m.begin + m.packed;
  }
  return all;
}

// The bytes of a member, inflated, in order.
class MemberBytes {
 public:
  MemberBytes(const Archive& f, const Member& m, const std::string& what) : f_(f), m_(m), what_(what) {
    if (m.method == kStored) return;
    constexpr int kRaw = -15;  // without zlib's header; a window of 2^15 bytes
    buffer_.resize(static_cast<std::size_t>(std::min<std::uint64_t>(m.packed, 1 << 16)));
    if (inflateInit2(&stream_, kRaw) != Z_OK) throw std::bad_alloc();
  }
  MemberBytes(const MemberBytes&) = delete;
  MemberBytes& operator=(const MemberBytes&) = delete;
  ~MemberBytes() { inflateEnd(&stream_); }  // harmless for a stored member

  // Copies the next `count` bytes to `to`. The caller reads no more than m.size bytes in all.
  void next(unsigned char* to, std::size_t count) {
    if (count == 0) return;  // `to` may be null, with which zlib would begin a new CRC
    if (m_.method == kStored) {
      f_.read(m_.begin + taken_, to, count);
      taken_ += count;
    } else {
      require(inflate_some(to, count) == count, what_, " is damaged: it has fewer bytes than the directory says");
    }
    crc_ = crc32_z(crc_, to, count);
  }

  // Throws Error unless the member ends here, and its bytes have its CRC.
  void finish() {
    unsigned char more = 0;
    if (m_.method == kDeflated) {
      require(inflate_some(&more, 1) == 0 && taken_ == m_.packed && stream_.avail_in == 0, what_,
              " is damaged: it has more bytes than the directory says");
    }
    require(crc_ == m_.crc, what_, " is damaged: its CRC differs from the one in the directory");
  }

 private:
  // Inflates `count` bytes, or less at the end of the member. Returns their number.
  std::size_t inflate_some(unsigned char* to, std::size_t count) {
    std::size_t done = 0;
    while (done < count && !ended_) {
      if (stream_.avail_in == 0) {
        const std::size_t part = static_cast<std::size_t>(std::min<std::uint64_t>(buffer_.size(), m_.packed - taken_));
        f_.read(m_.begin + taken_, buffer_.data(), part);
        taken_ += part;
        stream_.next_in = buffer_.data();
        stream_.avail_in = static_cast<uInt>(part);
      }
      const std::size_t room = std::min<std::size_t>(count - done, 1 << 30);
      stream_.next_out = to + done;
      stream_.avail_out = static_cast<uInt>(room);
      const int result = inflate(&stream_, Z_NO_FLUSH);
      if (result == Z_MEM_ERROR) throw std::bad_alloc();
      ended_ = result == Z_STREAM_END;
      require(ended_ || result == Z_OK, what_, " is damaged: ", stream_.msg ? stream_.msg : "its bytes end too early");
      done += room - stream_.avail_out;
    }
    return done;
  }

  const Archive& f_;
  const Member& m_;
  const std::string& what_;
  std::uint64_t taken_ = 0;  // bytes read from the file
  uLong crc_ = 0;
  bool ended_ = false;
  z_stream stream_ = {};
  std::vector<unsigned char> buffer_ = {};
};

TensorsByName read_npz(const Archive& f, std::optional<std::size_t> max_bytes) {
  TensorsByName all;
  for (const Member& m : checked_members(f, max_bytes)) {
    const std::string what = member_of(f, m);
    const auto [at, is_new] = all.try_emplace(m.name.substr(0, m.name.size() - kNpy.size()));
    require(is_new, what, " appears twice");
    MemberBytes bytes(f, m, what);
    const auto next = [&](void* to, std::size_t count) { bytes.next(static_cast<unsigned char*>(to), count); };
    at->second = detail::read_npy(next, m.size, what);
    bytes.finish();
  }
  return all;
}

}  // namespace zip
}  // namespace

TensorsByName load_npz(const std::filesystem::path& file, std::optional<std::size_t> max_bytes) {
  const detail::InputFile in("load_npz", file);
  const auto read = [&](std::uint64_t at, unsigned char* to, std::size_t count) { in.read_at(at, to, count); };
  return zip::read_npz({"load_npz: " + file.string(), in.size(), read}, max_bytes);
}

TensorsByName parse_npz(std::span<const std::byte> bytes, const std::string& name,
                        std::optional<std::size_t> max_bytes) {
  const auto read = [&](std::uint64_t at, unsigned char* to, std::size_t count) {
    std::ranges::copy(std::as_bytes(bytes).subspan(at, count), reinterpret_cast<std::byte*>(to));
  };
  return zip::read_npz({"parse_npz: " + name, bytes.size(), read}, max_bytes);
}

}  // namespace heed

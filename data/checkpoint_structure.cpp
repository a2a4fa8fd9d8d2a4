// A strict reader of HDF5 files from untrusted sources; over 400 lines, as it covers one format, section by section.
// Source: "HDF5 File Format Specification Version 3.0" (The HDF Group), whose sections the functions name. HDF5 itself
// trusts the content of a file, and crashes, loops or opens other files if the file is malicious. So HDF5 only writes
// checkpoints, and this reader reads them.
//
// Supported are the structures that HDF5 and h5py write for plain data sets in groups, in the old and in the new format
// (docs/checkpoint_format.md promises both). Headers: superblocks 0, 2 and 3, object headers 1 and 2. Groups: with a
// symbol table, with links in the header, or with links in a fractal heap. Values: contiguous or compact, and strings
// in the global heap. HDF5's own checksums are not checked, since the hash in heed's header covers every byte.
#include <algorithm>
#include <bit>
#include <cstring>
#include <heed/core/check.hpp>
#include <heed/data/detail/checkpoint_structure.hpp>
#include <heed/data/text.hpp>
#include <limits>
#include <map>
#include <optional>

namespace heed::detail {
namespace {

using Bytes = std::span<const unsigned char>;
using Kind = StoredType::Kind;

constexpr std::uint64_t kNowhere = ~std::uint64_t{0};  // HDF5's "undefined address"

// An error in the structure of an object; read_structure() adds the file and the object.
struct Damage {
  const char* what;
};

void expect(bool good, const char* what) {
  if (!good) throw Damage{what};
}

std::string_view as_text(Bytes bytes) { return {reinterpret_cast<const char*>(bytes.data()), bytes.size()}; }

// Reads bytes in order. Throws Damage{what} at the end of the bytes.
class Cursor {
 public:
  Cursor(Bytes bytes, const char* what) : bytes_(bytes), what_(what) {}

  Bytes take(std::uint64_t count) {
    expect(count <= bytes_.size(), what_);
    const Bytes taken = bytes_.first(static_cast<std::size_t>(count));
    bytes_ = bytes_.subspan(taken.size());
    return taken;
  }
  std::uint64_t number(std::size_t count) {  // little-endian
    std::uint64_t value = 0;
    for (std::size_t i = 0; const unsigned char byte : take(count)) value |= std::uint64_t{byte} << 8 * i++;
    return value;
  }
  std::uint64_t byte() { return number(1); }
  std::uint64_t address() { return number(8); }
  void skip(std::uint64_t count) { take(count); }
  void signature(std::string_view expected) { expect(as_text(take(expected.size())) == expected, what_); }
  void version(std::uint64_t expected) { expect(byte() == expected, what_); }
  std::size_t left() const { return bytes_.size(); }

 private:
  Bytes bytes_;
  const char* what_;
};

// Ranges of bytes that are in use.
class Ranges {
 public:
  bool has(std::uint64_t begin) const { return ends_.count(begin) == 1; }
  // Returns false if a part of the range is already in use.
  bool add(std::uint64_t begin, std::uint64_t size) {
    const auto next = ends_.lower_bound(begin);
    if (next != ends_.end() && next->first < begin + size) return false;
    if (next != ends_.begin() && std::prev(next)->second > begin) return false;
    ends_.emplace_hint(next, begin, begin + size);
    return true;
  }

 private:
  std::map<std::uint64_t, std::uint64_t> ends_;  // ends, by begin
};

// The number of bytes that can store every number up to `max`, as version 2 B-trees count them.
std::size_t bytes_for(std::uint64_t max) { return (static_cast<std::size_t>(std::bit_width(max | 1)) + 7) / 8; }

struct Link {
  std::string_view name;
  std::uint64_t address;
};

// The content of the messages of an object header.
struct Object {
  std::optional<StoredType> type;
  std::optional<std::vector<std::uint64_t>> sizes;
  std::optional<Bytes> values;  // values within the header, or
  std::uint64_t at = kNowhere;  // their address
  std::uint64_t bytes = 0;      // size of the values at this address
  std::optional<Bytes> dtype;   // value of the attribute dtype, of type dtype_type
  StoredType dtype_type;
  bool has_layout = false, is_group = false, is_null = false;
  std::vector<Link> links;
  std::uint64_t link_heap = kNowhere, link_tree = kNowhere;       // for a group with many links
  std::uint64_t symbol_tree = kNowhere, symbol_names = kNowhere;  // for a group in the old format
};

class Walk {
 public:
  Walk(const char* op, const std::string& source, Bytes image, std::size_t user_block,
       const std::function<void(const StoredData&)>& use)
      : op_(op), source_(source), file_size_(image.size()), user_block_(user_block), hdf5_(image), use_(use) {
    hdf5_ = image.subspan(std::min(user_block, image.size()));  // addresses count from here
  }

  void run() try { object(superblock(), "", 0); } catch (const Damage& d) {
    heed::fail(in(), "the structure of /", printable(path_), " is damaged or unknown: ", d.what);
  }

 private:
  const char* op_;
  const std::string& source_;
  std::uint64_t file_size_, user_block_;
  Bytes hdf5_;
  const std::function<void(const StoredData&)>& use_;
  std::string path_;              // of the current object
  std::uint64_t name_bytes_ = 0;  // total size of all paths
  Ranges taken_, parts_;          // structures in the file; names and strings within heaps
  // Sizes of symbol tables. These are HDF5's defaults, for superblocks from version 2 on, which do not store them.
  std::uint64_t leaf_k_ = 4, internal_k_ = 16;

  struct HeapString {
    std::uint64_t number, at, size;
  };
  std::map<std::uint64_t, std::vector<HeapString>> collections_;  // of the global heap, by address; sorted by number

  std::string in() const { return op_ + (": " + source_) + ": "; }
  std::string here() const { return in() + "/" + printable(path_); }

  // Claims the bytes of a structure, which must belong to no other structure.
  Bytes claim(std::uint64_t address, std::uint64_t size, const char* what) {
    expect(address <= hdf5_.size() && size <= hdf5_.size() - address && size > 0, what);
    if (!taken_.add(address, size)) throw Damage{"two of its parts overlap"};
    return hdf5_.subspan(static_cast<std::size_t>(address), static_cast<std::size_t>(size));
  }
  // The bytes from an address on, for structures whose first bytes contain their size.
  Cursor look(std::uint64_t address, const char* what) const {
    expect(address < hdf5_.size(), what);
    return Cursor(hdf5_.subspan(static_cast<std::size_t>(address)), what);
  }
  // Claims a structure, and checks and skips its signature and version.
  Cursor structure(std::uint64_t address, std::uint64_t size, const char* what, const char* signature,
                   std::uint64_t version) {
    Cursor c(claim(address, size, what), what);
    c.signature(signature);
    c.version(version);
    return c;
  }
  // Claims a part of a heap that is already claimed. Each part may be used once.
  void claim_part(Bytes part) {
    const auto at = static_cast<std::uint64_t>(part.data() - hdf5_.data());
    expect(part.empty() || parts_.add(at, part.size()), "two of its names or strings overlap");
  }

  // II.A. Disk Format: Level 0A - Format Signature and Superblock. Returns the address of the root group.
  std::uint64_t superblock() {
    constexpr const char* kWhat = "its superblock";
    if (hdf5_.size() < 12 || std::memcmp(hdf5_.data(), "\x89HDF\r\n\x1a\n", 8) != 0)
      heed::fail(op_, ": ", source_, " is sealed, but its content is not an HDF5 file with a user block of 512 bytes");
    const unsigned version = hdf5_[8];
    require(version == 0 || version == 2 || version == 3, in(), "its HDF5 has a superblock of version ", version,
            "; it must be 0, 2 or 3");
    Cursor c(claim(0, version == 0 ? 96 : 48, kWhat), kWhat);
    c.skip(version == 0 ? 13 : 9);  // version 0: also versions of parts, reserved
    expect(c.byte() == 8 && c.byte() == 8, "its addresses or lengths do not have 8 bytes");
    c.skip(1);
    if (version == 0) {
      leaf_k_ = c.number(2), internal_k_ = c.number(2);
      c.skip(4);
    }
    expect(c.address() == user_block_, "its base address");
    expect(c.address() == kNowhere, "its superblock has an extension or lists of free space");
    expect(c.address() == file_size_, "the end of the file");
    if (version == 0) {
      expect(c.address() == kNowhere, "it has a driver information block");
      c.skip(8);  // the root has no name
    }
    return c.address();
  }

  // Reads a group or a data set. `path` is empty for the root.
  void object(std::uint64_t address, const std::string& path, int depth) {
    constexpr int kDeepest = 16;
    path_ = path;
    require(depth <= kDeepest, here(), " is ", depth, " groups deep; the maximum is ", kDeepest);
    require(!taken_.has(address), here(), " is a second link to an object; each object must have one name");
    Object o = header(address);
    if (o.has_layout) return data(o);
    require(o.is_group, here(), " is neither a group nor a data set");
    if (o.symbol_tree != kNowhere) symbol_table(o);
    if (o.link_heap != kNowhere) dense_links(o);
    children(o, path, depth);
  }

  void children(Object& o, const std::string& path, int depth) {
    std::sort(o.links.begin(), o.links.end(), [](const Link& a, const Link& b) { return a.name < b.name; });
    for (std::size_t i = 0; i < o.links.size(); ++i) {
      const std::string name(o.links[i].name);
      const bool good = !name.empty() && name.find_first_of(std::string_view("/\0", 2)) == std::string::npos &&
                        name != "." && name != "..";
      path_ = path;
      require(good, here(), " contains the name «", printable(name),
              "»; names must not be empty, ., .. or contain a slash");
      require(i == 0 || o.links[i - 1].name != name, here(), " contains the name ", printable(name),
              " twice; names must be unique");
      const std::string child = path.empty() ? name : path + "/" + name;
      name_bytes_ += child.size();
      constexpr std::uint64_t kMaxNameBytes = std::uint64_t{16} << 20;
      expect(name_bytes_ <= kMaxNameBytes + hdf5_.size() / 4, "the names of its groups are too long");
      object(o.links[i].address, child, depth + 1);
    }
  }

  // IV.A. Data Object Headers.
  Object header(std::uint64_t address) {
    Object o;
    if (look(address, "an object header").byte() == 1)
      header_1(address, o);
    else
      header_2(address, o);
    return o;
  }

  // IV.A.1.a. Version 1 Data Object Header Prefix: 16 bytes, then messages: type, size, flags, three reserved bytes.
  void header_1(std::uint64_t address, Object& o) {
    constexpr const char* kWhat = "an object header of version 1";
    Cursor prefix = look(address, kWhat);
    prefix.skip(2);
    std::uint64_t messages = prefix.number(2);
    const std::uint64_t references = prefix.number(4), size = prefix.number(4);
    check_references(references);
    std::vector<Bytes> blocks = {claim(address, 16 + size, kWhat).subspan(16)};
    for (std::size_t i = 0; i < blocks.size(); ++i) {
      Cursor c(blocks[i], kWhat);
      for (; messages > 0 && c.left() >= 8; --messages) {
        const std::uint64_t type = c.number(2), bytes = c.number(2), flags = c.byte();
        c.skip(3);
        if (std::optional<Bytes> more = message(type, flags, c.take(bytes), o)) blocks.push_back(*more);
      }
    }
    expect(messages == 0, kWhat);
  }

  // IV.A.1.b. Version 2 Data Object Header Prefix. Its continuations also have a signature and a checksum.
  void header_2(std::uint64_t address, Object& o) {
    constexpr const char* kWhat = "an object header of version 2";
    constexpr std::size_t kChecksum = 4;
    Cursor prefix = look(address, kWhat);
    const std::size_t all = prefix.left();
    prefix.signature("OHDR");
    prefix.version(2);
    const std::uint64_t flags = prefix.byte();
    prefix.skip((flags & 0x20 ? 16 : 0) + (flags & 0x10 ? 4 : 0));  // times; limits of attributes
    const std::uint64_t size = prefix.number(std::size_t{1} << (flags & 3));
    const std::size_t before = all - prefix.left();
    expect(size <= hdf5_.size(), kWhat);
    std::vector<Bytes> blocks = {
        claim(address, before + size + kChecksum, kWhat).subspan(before, static_cast<std::size_t>(size))};
    for (std::size_t i = 0; i < blocks.size(); ++i) {
      Bytes block = blocks[i];
      if (i > 0) {
        Cursor(block, kWhat).signature("OCHK");
        expect(block.size() >= 4 + kChecksum, kWhat);
        block = block.subspan(4, block.size() - 4 - kChecksum);
      }
      Cursor c(block, kWhat);
      const std::size_t head = flags & 4 ? 6 : 4;
      while (c.left() >= head) {  // a shorter rest is a gap
        const std::uint64_t type = c.byte(), bytes = c.number(2), message_flags = c.byte();
        c.skip(head - 4);
        if (std::optional<Bytes> more = message(type, message_flags, c.take(bytes), o)) blocks.push_back(*more);
      }
    }
  }

  void check_references(std::uint64_t count) const {
    require(count == 1, here(), " is linked ", count, " times; each object must be linked once");
  }

  // IV.A.2. Data Object Header Messages. Returns the block that continues the header, if the message names one.
  std::optional<Bytes> message(std::uint64_t type, std::uint64_t flags, Bytes bytes, Object& o) {
    require((flags & 2) == 0, here(), " shares a part with other objects; it must have its own");
    Cursor c(bytes, "a message of its header");
    switch (type) {
      case 0x00:  // nil
      case 0x04:  // fill values, unused since all values are present
      case 0x05:
      case 0x0a:  // group info: when the storage of links changes
      case 0x0d:  // comment
      case 0x0e:  // times
      case 0x12: return {};
      case 0x01:
        expect(!o.sizes, "it has two shapes");
        o.sizes = dataspace(c, o.is_null);
        return {};
      case 0x02: link_info(c, o); return {};
      case 0x03:
        expect(!o.type, "it has two types");
        o.type = datatype(c);
        return {};
      case 0x06: link(c, o); return {};
      case 0x07: refuse_elsewhere();
      case 0x08: layout(c, o); return {};
      case 0x0b: refuse_chunks();
      case 0x0c: attribute(c, o); return {};
      case 0x10: {
        const std::uint64_t address = c.address(), size = c.number(8);
        return claim(address, size, "a continuation of its header");
      }
      case 0x11: symbol_table(c, o); return {};
      case 0x15: attribute_info(c); return {};
      case 0x16:
        c.version(0);
        check_references(c.number(4));
        return {};
      default: throw Damage{"its header has an unsupported message"};
    }
  }

  [[noreturn]] void refuse_elsewhere() const {
    heed::fail(here(), " stores its values in other files or data sets; a checkpoint must contain its own values");
  }
  [[noreturn]] void refuse_chunks() const {
    heed::fail(here(), " stores its values in chunks or compressed; they must be contiguous and uncompressed");
  }

  // IV.A.2.r. The Symbol Table Message.
  static void symbol_table(Cursor& c, Object& o) {
    expect(!o.is_group, "it has two group messages");
    o.is_group = true;
    o.symbol_tree = c.address(), o.symbol_names = c.address();
  }

  // IV.A.2.b. The Dataspace Message.
  static std::vector<std::uint64_t> dataspace(Cursor c, bool& is_null) {
    const std::uint64_t version = c.byte(), rank = c.byte(), flags = c.byte();
    expect(version == 1 || version == 2, "its shape");
    is_null = version == 2 && c.byte() == 2;
    if (version == 1) c.skip(5);
    expect(rank <= 32 && (flags & 2) == 0, "its shape");
    std::vector<std::uint64_t> sizes;
    for (std::uint64_t i = 0; i < rank; ++i) sizes.push_back(c.number(8));
    return sizes;  // followed by the maximum sizes
  }

  // Whether a floating-point type of this size is IEEE 754 in little-endian order; `bits` has its flags.
  static bool is_ieee(Cursor& c, std::uint64_t size, std::uint64_t bits) {
    const Bytes form = c.take(12);
    // Bit offset, bits, position and size of exponent and mantissa, bias: IEEE 754; then the position of the sign.
    constexpr unsigned char kSingle[12] = {0, 0, 32, 0, 23, 8, 0, 23, 127, 0, 0, 0};
    constexpr unsigned char kDouble[12] = {0, 0, 64, 0, 52, 11, 0, 52, 255, 3, 0, 0};
    const auto is = [&](const unsigned char* expected) { return std::equal(form.begin(), form.end(), expected); };
    const bool plain = size == 4   ? is(kSingle) && bits >> 8 == 31
                       : size == 8 ? is(kDouble) && bits >> 8 == 63
                                   : size == 2;
    return plain && (bits & 0x70) == 0x20;
  }

  // Whether an enumeration is h5py's bool: signed bytes, two names, their values. Before version 3 names were padded.
  static bool is_bool(Cursor& c, std::uint64_t size, std::uint64_t bits, std::uint64_t version) {
    constexpr unsigned char kByte[] = "\x08\0\0\1\0\0\0\0\0\x08";
    constexpr unsigned char kTight[] = "FALSE\0TRUE\0\0\1", kWide[] = "FALSE\0\0\0TRUE\0\0\0\0\0\1";
    const Bytes expected = version < 3 ? Bytes(kWide, sizeof kWide - 1) : Bytes(kTight, sizeof kTight - 1);
    const bool base = c.byte() % 16 == 0 && as_text(c.take(11)) == as_text(Bytes(kByte, 11));
    const bool two = base && size == 1 && (bits & 0xffff) == 2;
    return two && c.left() >= expected.size() && as_text(c.take(expected.size())) == as_text(expected);
  }

  // IV.A.2.d. The Datatype Message.
  static StoredType datatype(Cursor& c) {
    const std::uint64_t head = c.byte(), version = head >> 4, bits = c.number(3);
    StoredType type;
    type.size = static_cast<std::uint32_t>(c.number(4));
    expect(version >= 1 && type.size > 0, "its type");
    type.big_endian = (bits & 1) != 0;
    switch (head & 15) {
      case 0: {
        type.kind = Kind::integer;
        type.is_signed = (bits & 8) != 0;
        const std::uint64_t from = c.number(2), used = c.number(2);
        const bool plain = std::has_single_bit(type.size) && type.size <= 8 && from == 0 && used == 8 * type.size;
        if (!plain) type.kind = Kind::other;
        return type;
      }
      case 1: type.kind = is_ieee(c, type.size, bits) ? Kind::real : Kind::other; return type;
      case 3: type.kind = Kind::fixed_text; return type;
      case 6: type.other = "a compound"; return type;
      case 8:
        type.other = "an enumeration";
        if (is_bool(c, type.size, bits, version)) type.kind = Kind::boolean;
        return type;
      case 9:
        if ((bits & 15) == 1 && type.size == 16) type.kind = Kind::text;
        return type;
      default: return type;
    }
  }

  // IV.A.2.i. The Data Layout Message.
  void layout(Cursor& c, Object& o) const {
    expect(!o.has_layout, "it has two layouts");
    const std::uint64_t version = c.byte();
    expect(version >= 3 && version <= 5, "its layout");
    const std::uint64_t kind = c.byte();
    o.has_layout = true;
    if (kind == 2) refuse_chunks();
    if (kind == 3) refuse_elsewhere();
    expect(kind <= 1, "its layout");
    if (kind == 0) {
      o.values = c.take(c.number(2));
    } else {
      o.at = c.address(), o.bytes = c.number(8);
    }
  }

  // IV.A.2.m. The Attribute Message. Only the attribute dtype is read.
  static void attribute(Cursor& c, Object& o) {
    const std::uint64_t version = c.byte(), flags = c.byte();
    expect(version >= 1 && version <= 3, "an attribute");
    const std::uint64_t sizes[3] = {c.number(2), c.number(2), c.number(2)};  // of name, type and shape
    if (version == 3) c.skip(1);
    const auto part = [&](std::uint64_t size) {
      const Bytes taken = c.take(size);
      if (version == 1) c.skip((8 - size % 8) % 8);
      return taken;
    };
    if (as_text(part(sizes[0])) != std::string_view("dtype\0", 6)) return;
    expect(!o.dtype && (version == 1 || flags == 0), "its attribute dtype");
    Cursor type(part(sizes[1]), "its attribute dtype"), shape(part(sizes[2]), "its attribute dtype");
    o.dtype_type = datatype(type);
    bool none = false;
    for (const std::uint64_t size : dataspace(shape, none)) none = none || size != 1;
    if (!none && (o.dtype_type.kind == Kind::text || o.dtype_type.kind == Kind::fixed_text))
      o.dtype = c.take(o.dtype_type.size);
  }

  // IV.A.2.v. The Attribute Info Message.
  void attribute_info(Cursor& c) const {
    c.version(0);
    const std::uint64_t flags = c.byte();
    c.skip(flags & 1 ? 2 : 0);
    require(c.address() == kNowhere, here(), " has a table of attributes; its only attribute may be dtype");
  }

  // IV.A.2.g. The Link Message.
  void link(Cursor& c, Object& o) const {
    c.version(1);
    const std::uint64_t flags = c.byte(), kind = flags & 8 ? c.byte() : 0;
    c.skip((flags & 4 ? 8 : 0) + (flags & 16 ? 1 : 0));  // creation order; ASCII or UTF-8
    const std::string_view name = as_text(c.take(c.number(std::size_t{1} << (flags & 3))));
    if (kind != 0) refuse_link(name);
    o.links.push_back({name, c.address()});
  }

  [[noreturn]] void refuse_link(std::string_view name) const {
    heed::fail(here(), path_.empty() ? "" : "/", printable(name),
               " is a soft or external link; all objects must be in the file itself");
  }

  // III.A.1. Version 1 B-trees, III.B. Symbol Table Nodes and III.D. Local Heaps: a group in the old format.
  void symbol_table(Object& o) {
    Cursor heap = structure(o.symbol_names, 32, "a local heap", "HEAP", 0);
    heap.skip(3);
    const std::uint64_t size = heap.number(8);
    heap.skip(8);  // free space
    const Bytes names = claim(heap.address(), size, "a local heap");
    symbol_tree(o.symbol_tree, {}, names, o);
  }

  void symbol_tree(std::uint64_t address, std::optional<std::uint64_t> expected, Bytes names, Object& o) {
    constexpr const char* kWhat = "a B-tree of version 1";
    Cursor c = structure(address, 24 + 8 * (4 * internal_k_ + 1), kWhat, "TREE", 0);  // type 0: groups
    const std::uint64_t level = c.byte(), children = c.number(2);
    expect(level == expected.value_or(level) && children <= 2 * internal_k_, kWhat);
    c.skip(16);  // siblings
    for (std::uint64_t i = 0; i < children; ++i) {
      c.skip(8);  // a name that separates the children
      if (level > 0) {
        symbol_tree(c.address(), level - 1, names, o);
      } else {
        symbol_node(c.address(), names, o);
      }
    }
  }

  void symbol_node(std::uint64_t address, Bytes names, Object& o) {
    constexpr const char* kWhat = "a node of a symbol table";
    Cursor c = structure(address, 8 + 40 * 2 * leaf_k_, kWhat, "SNOD", 1);
    c.skip(1);
    const std::uint64_t count = c.number(2);
    expect(count <= 2 * leaf_k_, kWhat);
    for (std::uint64_t i = 0; i < count; ++i) {
      const std::uint64_t offset = c.address(), object = c.address(), cached = c.number(4);
      c.skip(4 + 16);
      expect(offset < names.size(), kWhat);
      const Bytes rest = names.subspan(static_cast<std::size_t>(offset));
      const auto end = std::find(rest.begin(), rest.end(), 0);
      expect(end != rest.end(), kWhat);
      const Bytes name = rest.first(static_cast<std::size_t>(end - rest.begin()));
      claim_part(name);
      if (cached == 2) refuse_link(as_text(name));
      o.links.push_back({as_text(name), object});
    }
  }

  // IV.A.2.c. The Link Info Message.
  static void link_info(Cursor& c, Object& o) {
    expect(!o.is_group, "it has two group messages");
    c.version(0);
    o.is_group = true;
    c.skip(c.byte() & 1 ? 8 : 0);
    o.link_heap = c.address(), o.link_tree = c.address();
  }

  // III.G. Fractal Heap: its blocks, by their offset in the heap.
  struct Heap {
    std::uint64_t address = 0, max_bits = 0, width = 0, first = 0, largest = 0;   // sizes of first and largest block
    bool checked = false;                                                         // blocks have a checksum
    std::vector<std::pair<std::uint64_t, Bytes>> blocks = {};

    std::size_t offset_bytes() const { return static_cast<std::size_t>((max_bits + 7) / 8); }
    std::uint64_t row_size(std::uint64_t row) const { return row == 0 ? first : first << (row - 1); }
  };

  Heap fractal_heap(std::uint64_t address) {
    constexpr const char* kWhat = "a fractal heap";
    Heap h;
    h.address = address;
    Cursor c = structure(address, 146, kWhat, "FRHP", 0);
    expect(c.number(2) == 7 && c.number(2) == 0, "a heap of links: its keys or filters");
    const std::uint64_t flags = c.byte();
    h.checked = (flags & 2) != 0;
    c.skip(4 + 8 + 8 + 8 + 8 + 8 + 8 + 8 + 8);  // limits, huge links, free space, sums
    expect((c.skip(8), c.number(8)) == 0 && (c.skip(8), c.number(8)) == 0, "a heap of links: huge or tiny links");
    h.width = c.number(2), h.first = c.number(8), h.largest = c.number(8), h.max_bits = c.number(2);
    expect(std::has_single_bit(h.width) && std::has_single_bit(h.first) && std::has_single_bit(h.largest) &&
               h.width <= 64 && h.first >= 64 && h.first <= h.largest && h.largest <= 65536 && h.max_bits <= 40,
           "a heap of links: the sizes of its blocks");
    c.skip(2);
    const std::uint64_t root = c.address(), rows = c.number(2);
    if (root == kNowhere) return h;
    if (rows == 0) {
      direct_block(h, root, 0, h.first);
    } else {
      indirect_block(h, root, 0, rows);
    }
    return h;
  }

  // Checks and skips the head of a block of a heap.
  static void block_head(Cursor& c, const Heap& h, const char* signature, std::uint64_t offset) {
    c.signature(signature);
    c.version(0);
    expect(c.address() == h.address && c.number(h.offset_bytes()) == offset, "a block of another heap");
  }

  void direct_block(Heap& h, std::uint64_t address, std::uint64_t offset, std::uint64_t size) {
    const Bytes bytes = claim(address, size, "a block of a heap");
    Cursor c(bytes, "a block of a heap");
    block_head(c, h, "FHDB", offset);
    h.blocks.push_back({offset, bytes});
  }

  void indirect_block(Heap& h, std::uint64_t address, std::uint64_t offset, std::uint64_t rows) {
    constexpr const char* kWhat = "a table of a heap";
    const auto log2 = [](std::uint64_t x) { return static_cast<std::uint64_t>(std::bit_width(x)) - 1; };
    const std::uint64_t first_row_bits = log2(h.first) + log2(h.width);
    const std::uint64_t direct_rows = log2(h.largest) - log2(h.first) + 2;
    expect(first_row_bits < h.max_bits && rows <= h.max_bits - first_row_bits + 1, kWhat);
    Cursor c(claim(address, 17 + h.offset_bytes() + 8 * rows * h.width, kWhat), kWhat);
    block_head(c, h, "FHIB", offset);
    for (std::uint64_t row = 0; row < rows; ++row) {
      const std::uint64_t size = h.row_size(row);
      for (std::uint64_t i = 0; i < h.width; ++i, offset += size) {
        const std::uint64_t child = c.address();
        if (child == kNowhere) continue;
        if (row < direct_rows) {
          direct_block(h, child, offset, size);
        } else {
          indirect_block(h, child, offset, log2(size) - first_row_bits + 1);
        }
      }
    }
  }

  // III.A.2. Version 2 B-trees, of type 5: the hash of a name, then the position of the link in the heap.
  struct Tree {
    std::uint64_t node_size = 0;
    std::size_t count_bytes = 0;                        // size of the number of records of a child
    std::vector<std::uint64_t> max_records = {}, within = {};  // max records of a node; of it and all below; by depth
  };
  static constexpr std::uint64_t kRecord = 11, kNode = 10;  // bytes of a record; of a node's head and checksum

  void dense_links(Object& o) {
    constexpr const char* kWhat = "a B-tree of version 2";
    const Heap heap = fractal_heap(o.link_heap);
    Cursor c = structure(o.link_tree, 38, kWhat, "BTHD", 0);
    expect(c.byte() == 5, kWhat);
    Tree t;
    t.node_size = c.number(4);
    const std::uint64_t record = c.number(2), depth = c.number(2);
    c.skip(2);  // when nodes split and merge
    const std::uint64_t root = c.address(), in_root = c.number(2);
    expect(record == kRecord && t.node_size >= 64 && t.node_size <= 65536 && depth <= 8, kWhat);
    t.max_records = t.within = {(t.node_size - kNode) / kRecord};
    t.count_bytes = bytes_for(t.max_records[0]);
    for (std::size_t d = 1; d <= depth; ++d) {
      const std::uint64_t pointer = pointer_bytes(t, d);
      t.max_records.push_back((t.node_size - kNode - pointer) / (kRecord + pointer));
      t.within.push_back((t.max_records[d] + 1) * t.within[d - 1] + t.max_records[d]);
      expect(t.within[d] < std::uint64_t{1} << 40, kWhat);
    }
    if (root != kNowhere) tree_node(t, root, depth, in_root, heap, o);
  }

  static std::uint64_t pointer_bytes(const Tree& t, std::size_t depth) {
    return 8 + t.count_bytes + (depth > 1 ? bytes_for(t.within[depth - 1]) : 0);
  }

  void tree_node(const Tree& t, std::uint64_t address, std::size_t depth, std::uint64_t count, const Heap& heap,
                 Object& o) {
    constexpr const char* kWhat = "a node of a B-tree of version 2";
    Cursor c = structure(address, t.node_size, kWhat, depth > 0 ? "BTIN" : "BTLF", 0);
    expect(c.byte() == 5 && count <= t.max_records[depth], kWhat);
    for (std::uint64_t i = 0; i < count; ++i) {
      c.skip(4);
      dense_link(Cursor(c.take(7), kWhat), heap, o);
    }
    for (std::uint64_t i = 0; depth > 0 && i <= count; ++i) {
      const std::uint64_t child = c.address(), records = c.number(t.count_bytes);
      c.skip(pointer_bytes(t, depth) - 8 - t.count_bytes);
      tree_node(t, child, depth - 1, records, heap, o);
    }
  }

  void dense_link(Cursor key, const Heap& heap, Object& o) {
    constexpr const char* kWhat = "a link in a heap";
    expect(key.byte() == 0, kWhat);
    const std::uint64_t offset = key.number(heap.offset_bytes()), size = key.number(2);
    auto block = std::upper_bound(heap.blocks.begin(), heap.blocks.end(), offset,
                                  [](std::uint64_t x, const auto& b) { return x < b.first; });
    expect(block != heap.blocks.begin(), kWhat);
    --block;
    const std::uint64_t within = offset - block->first;
    const std::uint64_t head = 13 + heap.offset_bytes() + (heap.checked ? 4 : 0);
    expect(within >= head && within <= block->second.size() && size <= block->second.size() - within, kWhat);
    const Bytes message = block->second.subspan(static_cast<std::size_t>(within), static_cast<std::size_t>(size));
    claim_part(message);
    Cursor c(message, kWhat);
    link(c, o);
  }

  // III.E. Global Heap: a string of variable length is stored as its size, the address of a collection and a number
  // there.
  std::string_view heap_string(Bytes value) {
    constexpr const char* kWhat = "a string";
    Cursor c(value, kWhat);
    const std::uint64_t size = c.number(4), address = c.address(), number = c.number(4);
    if (size == 0) return {};
    auto place = collections_.find(address);
    if (place == collections_.end()) place = collections_.emplace(address, collection(address)).first;
    const auto found = std::lower_bound(place->second.begin(), place->second.end(), number,
                                        [](const HeapString& s, std::uint64_t n) { return s.number < n; });
    expect(found != place->second.end() && found->number == number && size <= found->size, kWhat);
    const Bytes bytes = hdf5_.subspan(static_cast<std::size_t>(found->at), static_cast<std::size_t>(size));
    claim_part(bytes);
    return as_text(bytes);
  }

  std::vector<HeapString> collection(std::uint64_t address) {
    constexpr const char* kWhat = "a collection of strings";
    Cursor head = look(address, kWhat);
    head.signature("GCOL");
    head.version(1);
    head.skip(3);
    const Bytes all = claim(address, head.number(8), kWhat);
    Cursor c(all, kWhat);
    c.skip(16);
    std::vector<HeapString> strings;
    while (c.left() >= 16) {
      const std::uint64_t number = c.number(2);
      c.skip(6);
      const std::uint64_t size = c.number(8);
      if (number == 0) break;  // free space up to the end
      strings.push_back({number, address + (all.size() - c.left()), size});
      c.skip(size);
      c.skip(std::min<std::uint64_t>((8 - size % 8) % 8, c.left()));
    }
    std::sort(strings.begin(), strings.end(), [](const auto& a, const auto& b) { return a.number < b.number; });
    return strings;
  }

  void data(const Object& o) {
    expect(o.type && o.sizes, "it has no type or no shape");
    require(!o.is_null, here(), " has no shape; a checkpoint holds arrays and single values");
    constexpr auto kMaxSize = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
    std::uint64_t bytes = o.type->size;
    for (const std::uint64_t size : *o.sizes) {
      require(size <= kMaxSize && (size == 0 || bytes <= kMaxSize / std::max<std::uint64_t>(size, 1)), here(),
              " has an axis of ", size, ", so it is larger than any file");
      bytes *= std::max<std::uint64_t>(size, 1);  // also rejects a product that overflows next to a size of 0
    }
    if (std::find(o.sizes->begin(), o.sizes->end(), 0) != o.sizes->end()) bytes = 0;
    StoredData d{.path = path_, .type = *o.type, .sizes = *o.sizes};
    if (bytes > 0) {
      require(o.values || o.at != kNowhere, here(), " has no values in the file; a checkpoint must contain them");
      expect((o.values ? o.values->size() : o.bytes) == bytes, "its values do not have the size of its shape and type");
      d.values = o.values ? *o.values : claim(o.at, bytes, "its values");
    }
    const bool one = o.sizes->empty();
    if (one && d.type.kind == Kind::text) d.text = heap_string(d.values);
    if (one && d.type.kind == Kind::fixed_text) d.text = fixed_string(d.values);
    if (o.dtype) d.dtype = o.dtype_type.kind == Kind::text ? heap_string(*o.dtype) : fixed_string(*o.dtype);
    use_(d);
  }

  static std::string_view fixed_string(Bytes bytes) {
    const std::string_view text = as_text(bytes);
    return text.substr(0, text.find('\0'));
  }
};

}  // namespace

std::string StoredType::name() const {
  const std::string bits = std::to_string(8 * std::uint64_t{size});
  switch (kind) {
    case Kind::integer: return (is_signed ? "int" : "uint") + bits;
    case Kind::real: return "float" + bits;
    case Kind::boolean: return "bool";
    case Kind::fixed_text:
    case Kind::text: return "a string";
    case Kind::other: return other;
  }
  return other;
}

void read_structure(const char* op, const std::string& source, std::span<const unsigned char> image,
                    std::size_t user_block, const std::function<void(const StoredData&)>& use) {
  Walk(op, source, image, user_block, use).run();
}

}  // namespace heed::detail

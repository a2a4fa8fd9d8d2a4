// Reads the HDF5 part of a checkpoint file into a checkpoint, without HDF5 (see checkpoint_structure.hpp).
#include <algorithm>
#include <heed/core/check.hpp>
#include <heed/data/detail/checkpoint_hdf5.hpp>
#include <heed/data/detail/checkpoint_structure.hpp>
#include <heed/data/text.hpp>

namespace heed::detail {
namespace {

using Kind = StoredType::Kind;

class Reader {
 public:
  Reader(Checkpoint& checkpoint, const std::shared_ptr<unsigned char>& image)
      : checkpoint_(checkpoint), image_(image) {}

  void read(const StoredData& d) {
    if (d.path.find('/') == std::string::npos) {
      read_root(d);
    } else {
      checkpoint_.tensors.emplace(d.path, read_tensor(d));
    }
  }

 private:
  Checkpoint& checkpoint_;
  const std::shared_ptr<unsigned char>& image_;

  std::string in(const StoredData& d) const {
    return "load_checkpoint: " + checkpoint_.source + ": /" + printable(d.path);
  }

  // Entries outside of sections: counters (integers), texts (strings) and blobs (arrays of bytes).
  void read_root(const StoredData& d) {
    const bool is_text = d.type.kind == Kind::text || d.type.kind == Kind::fixed_text;
    if (d.sizes.empty() && d.type.kind == Kind::integer) {
      checkpoint_.counters[d.path] = counter(d);
    } else if (d.sizes.empty() && is_text) {
      require(d.text.find('\0') == std::string_view::npos, in(d), " has a zero byte; texts must have none");
      checkpoint_.texts[d.path] = d.text;
    } else if (d.sizes.size() == 1 && d.type.kind == Kind::integer && d.type.size == 1) {
      checkpoint_.blobs[d.path].assign(d.values.begin(), d.values.end());
    } else {
      heed::fail(in(d), " has rank ", d.sizes.size(), " and is ", d.type.name(),
                 "; an entry outside of the sections must be an integer, a string or a 1-D array of bytes");
    }
  }

  std::uint64_t counter(const StoredData& d) const {
    std::uint64_t value = 0;
    const std::size_t n = d.values.size();
    for (std::size_t i = 0; i < n; ++i) value = value << 8 | d.values[d.type.big_endian ? i : n - 1 - i];
    const bool negative = d.type.is_signed && (value >> (8 * n - 1)) != 0;
    require(!negative, in(d), " is negative; counters must be 0 or more");
    return value;
  }

  DType dtype_of(const StoredData& d) const {
    const StoredType& t = d.type;
    if (t.kind == Kind::real && t.size == 4) return DType::float32;
    if (t.kind == Kind::real && t.size == 8) return DType::float64;
    if (t.kind == Kind::integer && t.size == 4 && t.is_signed) return DType::int32;
    if (t.kind == Kind::boolean) return DType::bool8;
    if (t.kind == Kind::integer && t.size == 2 && d.dtype == "bfloat16") return DType::bfloat16;
    heed::fail(in(d), " is ", t.name(),
               "; tensors must be float32, float64, int32, bool, or uint16 with the attribute dtype = bfloat16");
  }

  Tensor read_tensor(const StoredData& d) const {
    const DType dtype = dtype_of(d);
    require(d.sizes.size() <= kMaxRank, in(d), " has ", d.sizes.size(), " axes; tensors have at most ", kMaxRank);
    const Tensor x = values_of(d, Shape(d.sizes.begin(), d.sizes.end()), dtype);
    require(dtype != DType::bool8 || std::all_of(d.values.begin(), d.values.end(), [](auto b) { return b <= 1; }),
            in(d), " has values that are neither true nor false");
    return x;
  }

  // Small tensors are copied, because a tensor that looks into the image keeps the whole image in memory.
  Tensor values_of(const StoredData& d, const Shape& shape, DType dtype) const {
    constexpr std::size_t kLarge = std::size_t{1} << 16;
    const std::size_t at = static_cast<std::size_t>(d.values.data() - image_.get());
    const bool swaps = d.type.big_endian && d.type.size > 1;
    if (d.values.size() >= kLarge && at % size_of(dtype) == 0 && !swaps)
      return Tensor::of_memory(image_.get() + at, image_, shape, dtype);
    Tensor x = Tensor::empty(shape, dtype);
    auto* bytes = static_cast<unsigned char*>(x.raw());
    std::copy(d.values.begin(), d.values.end(), bytes);
    if (swaps)
      for (std::size_t i = 0; i < d.values.size(); i += d.type.size) std::reverse(bytes + i, bytes + i + d.type.size);
    return x;
  }
};

}  // namespace

Checkpoint parse_hdf5(const std::shared_ptr<unsigned char>& image, std::size_t size, const std::string& source) {
  Checkpoint checkpoint;
  checkpoint.source = source;
  Reader reader(checkpoint, image);
  read_structure("load_checkpoint", source, {image.get(), size}, kUserBlock,
                 [&](const StoredData& d) { reader.read(d); });
  return checkpoint;
}

}  // namespace heed::detail

// Converts the numbers of files to tensors and back, piece by piece, on all threads.
#include <heed/io/stored_tensor.hpp>
//
#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <cstring>
#include <heed/core/elementwise.hpp>
#include <heed/core/float16.hpp>
#include <heed/core/index.hpp>
#include <heed/core/names.hpp>
#include <heed/core/parallel.hpp>
#include <heed/core/quantized.hpp>
#include <iterator>
#include <limits>
#include <type_traits>
#include <utility>

namespace heed {
namespace {

static_assert(std::endian::native == std::endian::little, "files store numbers in little-endian order");

constexpr Index kPieceItems = 4096;  // numbers converted at once: whole blocks of each type
constexpr Index kPieceGrain = 8;     // pieces per task

// ---- Numbers that do not fit ----

// A piece of a tensor that is converted, for messages.
struct NumberPiece {
  const std::string& what;  // "load: tensor 'x' is [2, 3] F64"
  const Shape& shape;
  Index first;            // position of its first number in the tensor, in row-major order
  std::string_view type;  // to which it is converted

  template <class V>
  [[noreturn]] void refuse(Index i, V value) const {
    Shape index = shape;
    Index rest = first + i;
    for (int a = shape.rank() - 1; a >= 0; rest /= shape[a], --a) index[a] = rest % shape[a];
    fail(what, " and has the value ", value, " at ", index, "; it must be a number that ", type, " can hold");
  }
};

// Whether To can hold x: exactly if To is int32 or bool, else without becoming infinite.
template <class To, class From>
bool can_hold(From x) {
  if constexpr (std::is_same_v<From, To> || std::is_same_v<From, bool>) {
    return true;
  } else if constexpr (std::is_same_v<From, bfloat16>) {
    return can_hold<To>(static_cast<float>(x));
  } else if constexpr (std::is_same_v<To, bool>) {
    return x == From(0) || x == From(1);
  } else if constexpr (std::is_integral_v<From>) {
    if constexpr (std::is_integral_v<To>) return std::in_range<To>(x);
    return true;
  } else if constexpr (std::is_integral_v<To>) {
    return holds(dtype_of<To>, static_cast<double>(x));
  } else {
    using Wide = std::conditional_t<std::is_same_v<To, double>, double, float>;
    const bool infinite = std::abs(detail::convert<Wide>(detail::convert<To>(x))) > std::numeric_limits<Wide>::max();
    return !(infinite && std::abs(x) <= std::numeric_limits<From>::max());
  }
}

// to[i] = at(i), converted.
template <class To, class At>
void convert_numbers(At at, Index n, To* __restrict to, const NumberPiece& piece) {
  constexpr Index kRun = 32;  // a constant number of iterations, for vectorisation
  unsigned misfits = 0;
  const auto convert_one = [&](Index i) {
    const auto x = at(i);
    misfits |= can_hold<To>(x) ? 0u : 1u;
    to[i] = detail::convert<To>(x);
  };
  Index done = 0;
  for (; done + kRun <= n; done += kRun)
    for (Index i = 0; i < kRun; ++i) convert_one(done + i);
  for (; done < n; ++done) convert_one(done);
  for (Index i = 0; i < n && misfits != 0; ++i)
    if (!can_hold<To>(at(i))) piece.refuse(i, at(i));
}

template <class From, class To>
void convert_numbers_of(const From* from, Index n, To* to, const NumberPiece& piece) {
  if constexpr (std::is_same_v<From, bfloat16>)
    convert_numbers([from](Index i) { return static_cast<float>(from[i]); }, n, to, piece);
  else
    convert_numbers([from](Index i) { return from[i]; }, n, to, piece);
}

void convert_numbers(DType from_type, const void* from, Index n, DType to_type, void* to, const NumberPiece& piece) {
  visit_dtype(from_type, [&]<class From>(From) {
    visit_dtype(to_type, [&]<class To>(To) {
      convert_numbers_of(static_cast<const From*>(from), n, static_cast<To*>(to), piece);
    });
  });
}

// ---- Reading and writing n numbers ----

using ReadNumbers = void (*)(const std::byte* from, Index n, void* to, const NumberPiece& piece);
using WriteNumbers = void (*)(const void* from, Index n, std::byte* to, const NumberPiece& piece);

template <class From, class To>
void read_numbers(const std::byte* from, Index n, void* to, const NumberPiece& piece) {
  const auto at = [from](Index i) {
    From x;
    std::memcpy(&x, from + i * static_cast<Index>(sizeof x), sizeof x);
    return x;
  };
  convert_numbers(at, n, static_cast<To*>(to), piece);
}

template <class T>
void read_unchanged(const std::byte* from, Index n, void* to, const NumberPiece&) {
  std::memcpy(to, from, static_cast<std::size_t>(n) * sizeof(T));
}

void read_booleans(const std::byte* from, Index n, void* to, const NumberPiece&) {
  std::transform(from, from + n, static_cast<bool*>(to), [](std::byte b) { return b != std::byte{0}; });
}

void read_f16(const std::byte* from, Index n, void* to, const NumberPiece&) {
  constexpr Index kRun = 32;  // a constant number of iterations, for vectorisation
  auto* y = static_cast<float*>(to);
  for (Index done = 0; done < n; done += kRun) {
    const Index count = std::min(kRun, n - done);
    std::uint16_t bits[kRun] = {};
    float numbers[kRun];
    std::memcpy(bits, from + done * 2, static_cast<std::size_t>(count) * sizeof(std::uint16_t));
    for (Index i = 0; i < kRun; ++i) numbers[i] = detail::from_float16(bits[i]);
    std::copy_n(numbers, count, y + done);
  }
}

template <auto read_blocks, Index items>
void read_quantized(const std::byte* from, Index n, void* to, const NumberPiece&) {
  read_blocks(from, n / items, static_cast<float*>(to));
}

template <class T>
void write_unchanged(const void* from, Index n, std::byte* to, const NumberPiece&) {
  std::memcpy(to, from, static_cast<std::size_t>(n) * sizeof(T));
}

void write_i64(const void* from, Index n, std::byte* to, const NumberPiece&) {
  const auto* x = static_cast<const std::int32_t*>(from);
  for (Index i = 0; i < n; ++i) {
    const std::int64_t wide = x[i];
    std::memcpy(to + i * 8, &wide, sizeof wide);
  }
}

void write_f16(const void* from, Index n, std::byte* to, const NumberPiece& piece) {
  const auto* x = static_cast<const float*>(from);
  bool all = true;
  const auto is_held = [](float number, std::uint16_t bits) { return (bits & 0x7fff) != 0x7c00 || std::isinf(number); };
  for (Index i = 0; i < n; ++i) {
    const std::uint16_t bits = detail::to_float16(x[i]);
    all &= is_held(x[i], bits);
    std::memcpy(to + i * 2, &bits, sizeof bits);
  }
  for (Index i = 0; i < n && !all; ++i)
    if (!is_held(x[i], detail::to_float16(x[i]))) piece.refuse(i, x[i]);
}

void write_q8_0(const void* from, Index n, std::byte* to, const NumberPiece& piece) {
  const auto* x = static_cast<const float*>(from);
  for (Index i = 0; i < n; i += 32, to += 34) {
    if (detail::write_q8_0(x + i, to)) continue;
    const float *end = x + i + 32, *bad = std::find_if_not(x + i, end, [](float v) { return std::isfinite(v); });
    if (bad == end) bad = std::max_element(x + i, end, [](float a, float b) { return std::abs(a) < std::abs(b); });
    piece.refuse(bad - x, *bad);
  }
}

// ---- The types ----

struct StoredFormat {
  const char* name;
  Index items, bytes;  // per block
  DType dtype;         // of the tensor that is read
  ReadNumbers read;
  WriteNumbers write = nullptr;  // null if store() does not write the type
};

constexpr StoredFormat kFormats[] = {
    // in the order of StoredType
    {"F64", 1, 8, DType::float64, read_unchanged<double>, write_unchanged<double>},
    {"F32", 1, 4, DType::float32, read_unchanged<float>, write_unchanged<float>},
    {"F16", 1, 2, DType::float32, read_f16, write_f16},
    {"BF16", 1, 2, DType::bfloat16, read_unchanged<bfloat16>, write_unchanged<bfloat16>},
    {"I64", 1, 8, DType::int32, read_numbers<std::int64_t, std::int32_t>, write_i64},
    {"I32", 1, 4, DType::int32, read_unchanged<std::int32_t>, write_unchanged<std::int32_t>},
    {"I16", 1, 2, DType::int32, read_numbers<std::int16_t, std::int32_t>},
    {"I8", 1, 1, DType::int32, read_numbers<std::int8_t, std::int32_t>},
    {"U64", 1, 8, DType::int32, read_numbers<std::uint64_t, std::int32_t>},
    {"U32", 1, 4, DType::int32, read_numbers<std::uint32_t, std::int32_t>},
    {"U16", 1, 2, DType::int32, read_numbers<std::uint16_t, std::int32_t>},
    {"U8", 1, 1, DType::int32, read_numbers<std::uint8_t, std::int32_t>},
    {"BOOL", 1, 1, DType::bool8, read_booleans, write_unchanged<bool>},
    {"Q8_0", 32, 34, DType::float32, read_quantized<detail::read_q8_0, 32>, write_q8_0},
    {"Q4_0", 32, 18, DType::float32, read_quantized<detail::read_q4_0, 32>},
    {"Q4_1", 32, 20, DType::float32, read_quantized<detail::read_q4_1, 32>},
    {"Q4_K", 256, 144, DType::float32, read_quantized<detail::read_q4_k, 256>},
    {"Q6_K", 256, 210, DType::float32, read_quantized<detail::read_q6_k, 256>},
};
static_assert(std::size(kFormats) == static_cast<std::size_t>(StoredType::q6_k) + 1);

const StoredFormat& format_of(StoredType type) { return kFormats[static_cast<std::size_t>(type)]; }

bool has_valid_sizes(const Shape& shape) {
  return std::all_of(shape.begin(), shape.end(), [](Index n) { return n >= 0; }) && detail::can_be_counted(shape);
}

// Calls convert(first, count) for pieces that cover [0, n), on all threads. Of several Errors, that of the first piece
// is thrown, so that the message does not depend on threads.
template <class F>
void for_each_piece(Index n, const F& convert) {
  const Index pieces = (n + kPieceItems - 1) / kPieceItems;
  const auto run = [&](Index p) { convert(p * kPieceItems, std::min(kPieceItems, n - p * kPieceItems)); };
  std::atomic<Index> bad{pieces};
  parallel_for_each(pieces, kPieceGrain, [&](Index p) {
    try {
      if (p < bad) run(p);
    } catch (const Error&) {
      for (Index first = bad; p < first && !bad.compare_exchange_weak(first, p);) {
      }
    }
  });
  if (bad < pieces) run(bad);  // throws again
}

}  // namespace

std::string_view name_of(StoredType type) { return format_of(type).name; }

std::optional<StoredType> stored_type_named(std::string_view name) {
  const auto* found =
      std::find_if(std::begin(kFormats), std::end(kFormats), [&](const auto& f) { return f.name == name; });
  if (found == std::end(kFormats)) return std::nullopt;
  return static_cast<StoredType>(found - kFormats);
}

Index items_per_block(StoredType type) { return format_of(type).items; }
Index bytes_per_block(StoredType type) { return format_of(type).bytes; }

std::optional<std::size_t> stored_bytes(StoredType type, const Shape& shape) {
  const StoredFormat& f = format_of(type);
  const bool whole = f.items == 1 || (!shape.empty() && shape.back() % f.items == 0);
  if (!has_valid_sizes(shape) || !whole) return std::nullopt;
  return static_cast<std::size_t>(shape.numel() / f.items) * static_cast<std::size_t>(f.bytes);
}

DType dtype_for(StoredType type) { return format_of(type).dtype; }

StoredType stored_type_for(DType dtype) {
  constexpr StoredType kTypes[] = {StoredType::f32,     StoredType::f64,  StoredType::bf16, StoredType::i32,
                                   StoredType::boolean, StoredType::q8_0, StoredType::q4_0, StoredType::q4_1};
  return kTypes[static_cast<std::size_t>(dtype)];  // in the order of DType
}

std::optional<DType> quantized_dtype(StoredType type) {
  for (const DType dtype : {DType::q8_0, DType::q4_0, DType::q4_1})
    if (stored_type_for(dtype) == type) return dtype;
  return std::nullopt;
}

// Blocks as they are, or numbers rounded to q8_0.
static Tensor load_blocks(const StoredTensor& stored, const StoredFormat& f, DType dtype, const std::string& what) {
  const Tensor y = Tensor::empty(stored.shape, dtype);
  auto* const to = static_cast<std::byte*>(y.memory());
  const bool same = stored_type_for(dtype) == stored.type;
  require(same || dtype == DType::q8_0, what, "; it cannot become ", dtype);
  for_each_piece(y.numel(), [&](Index first, Index n) {
    const std::byte* from = stored.bytes.data() + first / f.items * f.bytes;
    std::byte* blocks = to + bytes_of(dtype, first);
    if (same) return void(std::memcpy(blocks, from, bytes_of(dtype, n)));
    alignas(64) std::byte numbers[kPieceItems * 8], wide[kPieceItems * 4];
    f.read(from, n, numbers, {what, stored.shape, first, name_of(f.dtype)});
    const NumberPiece piece{what, stored.shape, first, name_of(dtype)};
    convert_numbers(f.dtype, numbers, n, DType::float32, wide, piece);
    write_q8_0(wide, n, blocks, piece);
  });
  return y;
}

Tensor load(const StoredTensor& stored, std::optional<DType> dtype) {
  const StoredFormat& f = format_of(stored.type);
  const std::string what = "load: tensor '" + excerpt(stored.name) + "' is " + to_string(stored.shape) + " " + f.name;
  require(has_valid_sizes(stored.shape), what, "; its sizes must be at least 0, and their product at most 2^60");
  const auto bytes = stored_bytes(stored.type, stored.shape);
  require(bytes.has_value(), what, "; its last axis must be a multiple of ", f.items);
  require(*bytes == stored.bytes.size(), what, " and has ", stored.bytes.size(), " bytes; it must have ", *bytes);
  if (dtype && is_quantized(*dtype)) return load_blocks(stored, f, *dtype, what);
  const Tensor y = Tensor::empty(stored.shape, dtype.value_or(f.dtype));
  auto* const all = static_cast<std::byte*>(y.raw());
  for_each_piece(y.numel(), [&](Index first, Index n) {
    const std::byte* from = stored.bytes.data() + first / f.items * f.bytes;
    std::byte* to = all + first * static_cast<Index>(size_of(y.dtype()));
    const NumberPiece read{what, stored.shape, first, name_of(f.dtype)};
    if (y.dtype() == f.dtype) return f.read(from, n, to, read);
    alignas(64) std::byte numbers[kPieceItems * 8];
    f.read(from, n, numbers, read);
    convert_numbers(f.dtype, numbers, n, y.dtype(), to, {what, stored.shape, first, name_of(y.dtype())});
  });
  return y;
}

std::vector<std::byte> store(const Tensor& x, StoredType type) {
  const StoredFormat& f = format_of(type);
  if (x.defined() && is_quantized(x.dtype())) {
    if (stored_type_for(x.dtype()) != type) return store(x.detach().to(DType::float32), type);
    const Tensor dense = x.detach().dense();
    const auto* const blocks = static_cast<const std::byte*>(dense.memory());
    return {blocks, blocks + bytes_of(x.dtype(), x.numel())};
  }
  require(f.write != nullptr, "store: the type is ", f.name,
          "; it must be F64, F32, F16, BF16, I64, I32, BOOL or Q8_0");
  require(x.defined(), "store: x is undefined; it must have values");
  const auto bytes = stored_bytes(type, x.shape());
  require(bytes.has_value(), "store: x is ", x, "; for ", f.name, " its last axis must be a multiple of ", f.items);
  const std::string what = "store: x is " + describe(x);
  const Tensor dense = x.detach().dense();
  const auto* const all = static_cast<const std::byte*>(dense.raw());
  std::vector<std::byte> stored(*bytes);
  for_each_piece(x.numel(), [&](Index first, Index n) {
    const NumberPiece piece{what, x.shape(), first, f.name};
    const std::byte* from = all + first * static_cast<Index>(size_of(x.dtype()));
    std::byte* to = stored.data() + first / f.items * f.bytes;
    if (x.dtype() == f.dtype) return f.write(from, n, to, piece);
    alignas(64) std::byte numbers[kPieceItems * 8];
    convert_numbers(x.dtype(), from, n, f.dtype, numbers, piece);
    f.write(numbers, n, to, piece);
  });
  return stored;
}

}  // namespace heed

// Numbers of files: numpy's and gguf's values and bytes, every type to every dtype, and refusals.
#include <bit>
#include <cmath>
#include <cstring>
#include <heed/core/float16.hpp>
#include <heed/core/parallel.hpp>
#include <heed/io/stored_tensor.hpp>

#include "tests/support.hpp"
#include "tests/tools/json.hpp"
#include "tests/tools/paths.hpp"

using namespace heed;
using test::error_of;
using Bytes = std::vector<std::byte>;

namespace {

constexpr StoredType kTypes[] = {
    StoredType::f64,     StoredType::f32,  StoredType::f16,  StoredType::bf16, StoredType::i64,  StoredType::i32,
    StoredType::i16,     StoredType::i8,   StoredType::u64,  StoredType::u32,  StoredType::u16,  StoredType::u8,
    StoredType::boolean, StoredType::q8_0, StoredType::q4_0, StoredType::q4_1, StoredType::q4_k, StoredType::q6_k};
constexpr DType kDTypes[] = {DType::float32, DType::float64, DType::bfloat16, DType::int32, DType::bool8};

const nlohmann::json& reference() {
  static const nlohmann::json all = test::json_file(test::in_source("tests/reference/stored_types.json"));
  return all;
}

Bytes from_hex(const std::string& hex) {
  Bytes bytes;
  for (std::size_t i = 0; i < hex.size(); i += 2) bytes.push_back(std::byte(std::stoi(hex.substr(i, 2), nullptr, 16)));
  return bytes;
}

template <class T>
Bytes bytes_of(const std::vector<T>& numbers) {
  Bytes bytes(numbers.size() * sizeof(T));
  std::memcpy(bytes.data(), numbers.data(), bytes.size());
  return bytes;
}

// ---- The formulas of tests/reference/stored_types.py ----

struct States {
  std::uint32_t state = 1;
  std::uint32_t next() { return state = state * 1664525u + 1013904223u; }
};

template <class T>
std::uint64_t hash_of(const T* numbers, Index count) {
  std::uint64_t hash = 0;
  for (Index i = 0; i < count; ++i) hash = hash * 1000003u + numbers[i];
  return hash;
}
std::uint64_t hash_of(const Bytes& bytes) {
  return hash_of(reinterpret_cast<const std::uint8_t*>(bytes.data()), static_cast<Index>(bytes.size()));
}

constexpr Index kBlocks = 1000;

// Random blocks. Their float16 numbers, at `float16_at`, are finite.
Bytes blocks_of(StoredType type, const std::vector<std::size_t>& float16_at) {
  const auto size = static_cast<std::size_t>(bytes_per_block(type));
  Bytes blocks(static_cast<std::size_t>(kBlocks) * size);
  States states;
  for (std::byte& b : blocks) b = std::byte(states.next() >> 24);
  for (std::size_t block = 0; block < blocks.size() / size; ++block) {
    for (std::size_t at : float16_at) {
      std::byte* number = &blocks[block * size + at];
      number[1] &= std::byte{0xbf};
      if (block % 4 == 1) number[0] = std::byte{1}, number[1] = std::byte{0};
      if (block % 4 == 2) number[0] = std::byte{0xff}, number[1] = std::byte{0xfb};
    }
  }
  return blocks;
}

std::vector<std::size_t> float16_in(StoredType type) {
  if (type == StoredType::q6_k) return {208};
  if (type == StoredType::q4_1 || type == StoredType::q4_k) return {0, 2};
  return {0};
}

float half_by_formula(std::uint32_t bits) {
  const int exponent = bits >> 10 & 31, fraction = bits & 1023;
  const double size = exponent == 31  ? (fraction == 0 ? HUGE_VAL : NAN)
                      : exponent == 0 ? std::ldexp(fraction, -24)
                                      : std::ldexp(1024 + fraction, exponent - 25);
  return static_cast<float>(bits & 0x8000 ? -size : size);
}

}  // namespace

TEST_CASE("stored types: names, blocks and sizes") {
  for (const StoredType type : kTypes) {
    INFO(name_of(type));
    CHECK(stored_type_named(name_of(type)) == type);
    CHECK(is_quantized(type) == (items_per_block(type) > 1));
    CHECK(stored_bytes(type, {3, 2, 256}) == 6 * 256 / items_per_block(type) * bytes_per_block(type));
    CHECK(stored_bytes(type, {3, 0}) == 0);
    CHECK(stored_bytes(type, {1, 300}).has_value() == !is_quantized(type));  // no whole number of blocks
    CHECK(stored_bytes(type, {}).has_value() == !is_quantized(type));
    CHECK(!stored_bytes(type, {-256, -256}));
    CHECK(!stored_bytes(type, {0, -1}));
    CHECK(!stored_bytes(type, {Index{1} << 40, Index{1} << 40}));
    CHECK(!stored_bytes(type, {Index{1} << 40, Index{1} << 40, 0}));
    CHECK(!stored_bytes(type, {Index{1} << 61}));
  }
  CHECK(stored_bytes(StoredType::f64, {Index{1} << 60}) == std::size_t{1} << 63);
  CHECK(name_of(StoredType::boolean) == "BOOL");
  CHECK(name_of(StoredType::q4_k) == "Q4_K");
  CHECK(bytes_per_block(StoredType::q6_k) == 210);
  for (const char* none : {"", "f32", "F8_E4M3", "Q4_K_M", "F32 "}) CHECK(!stored_type_named(none));
  for (const DType dtype : kDTypes) CHECK(dtype_for(stored_type_for(dtype)) == dtype);
}

TEST_CASE("stored types: numbers are those of numpy and gguf") {
  for (const char* kind : {"plain", "quantized"}) {
    for (const auto& entry : reference()[kind].items()) {
      const std::string name = entry.key();
      const nlohmann::json& stored = entry.value();
      INFO(name);
      const StoredType type = stored_type_named(name).value();
      const auto values = stored["values"].get<std::vector<double>>();
      const Bytes bytes = from_hex(stored["bytes"]);
      const Shape shape = {static_cast<Index>(values.size())};
      const Tensor expected = Tensor::from(values);
      CHECK(test::same_bits(load({name, shape, type, bytes}), expected.to(dtype_for(type))));
      for (const DType dtype : {DType::float32, DType::float64, DType::bfloat16})
        CHECK(test::same_bits(load({name, shape, type, bytes}, dtype), expected.to(dtype_for(type)).to(dtype)));
      Bytes shifted(1);  // no alignment is needed
      shifted.insert(shifted.end(), bytes.begin(), bytes.end());
      CHECK(test::same_bits(load({name, shape, type, std::span<const std::byte>(shifted).subspan(1)}),
                            expected.to(dtype_for(type))));
      for (std::size_t n = 0; n < bytes.size(); ++n)
        CHECK(error_of([&] {
                load({name, shape, type, std::span(bytes).first(n)});
              }) == "load: tensor '" + name + "' is " + to_string(shape) + " " + name + " and has " +
                        std::to_string(n) + " bytes; it must have " + std::to_string(bytes.size()));
    }
  }
}

TEST_CASE("stored types: random blocks have the bits of gguf") {
  for (const auto& entry : reference()["quantized"].items()) {
    const std::string name = entry.key();
    const nlohmann::json& stored = entry.value();
    INFO(name);
    const StoredType type = stored_type_named(name).value();
    const Bytes bytes = blocks_of(type, float16_in(type));
    const Shape shape = {kBlocks / 8, 8 * items_per_block(type)};
    const Tensor x = load({name, shape, type, bytes});
    CHECK(hash_of(reinterpret_cast<const std::uint32_t*>(x.data<float>()), x.numel()) == stored["hash"]);
    CHECK(test::same_bits(load({name, shape, type, bytes}, DType::bfloat16), x.to(DType::bfloat16)));
    set_threads(1);
    CHECK(test::same_bits(load({name, shape, type, bytes}), x));
    set_threads(0);
  }
}

TEST_CASE("float16: every number is exact, and every number between two is rounded to nearest, ties to even") {
  int wrong = 0;
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    const float x = detail::from_float16(static_cast<std::uint16_t>(bits)), expected = half_by_formula(bits);
    if (std::isnan(expected)) {
      wrong += !std::isnan(x) || (detail::to_float16(x) & 0x7fff) <= 0x7c00;
      continue;
    }
    wrong += std::bit_cast<std::uint32_t>(x) != std::bit_cast<std::uint32_t>(expected);
    wrong += detail::to_float16(x) != bits;
    if ((bits & 0x7fff) >= 0x7c00) continue;
    // The next number away from 0. The one after the largest would be 65536, and is infinity.
    const float next = (bits & 0x7fff) == 0x7bff ? std::copysign(65536.0f, x) : half_by_formula(bits + 1);
    const float tie = (x + next) / 2;  // exact
    wrong += detail::to_float16(tie) != bits + (bits & 1);
    wrong += detail::to_float16(std::nextafter(tie, x)) != bits;
    wrong += detail::to_float16(std::nextafter(tie, next)) != bits + 1;
  }
  CHECK(wrong == 0);
  CHECK(detail::to_float16(std::numeric_limits<float>::max()) == 0x7c00);
  CHECK(detail::to_float16(-std::numeric_limits<float>::denorm_min()) == 0x8000);

  States states;
  std::vector<std::uint16_t> halves(1 << 20);
  for (std::uint16_t& h : halves) {
    h = detail::to_float16(std::bit_cast<float>(states.next()));
    if ((h & 0x7fff) > 0x7c00) h = 0x7e00;  // NaN
  }
  CHECK(hash_of(halves.data(), static_cast<Index>(halves.size())) == reference()["written"]["F16"]["hash"]);
}

TEST_CASE("stored types: Q8_0 is written with the bytes of gguf") {
  const auto& stored = reference()["written"]["Q8_0"];
  CHECK(store(Tensor::from(stored["values"].get<std::vector<float>>()), StoredType::q8_0) == from_hex(stored["bytes"]));
  States states;
  std::vector<float> numbers(32 * static_cast<std::size_t>(kBlocks));
  for (std::size_t i = 0; i < numbers.size(); ++i)
    numbers[i] =
        std::ldexp(static_cast<float>(static_cast<std::int32_t>(states.next())), -20 - static_cast<int>(i / 32 % 32));
  const Tensor x = Tensor::from(numbers, {kBlocks / 8, 256});
  CHECK(hash_of(store(x, StoredType::q8_0)) == stored["hash"]);
  CHECK(store(Tensor::zeros({64}), StoredType::q8_0) == Bytes(68));
  // The reciprocal of these blocks' scale would be infinite.
  for (const double tiny : {1e-45, 3e-39, 1e-37}) {
    const Bytes bytes = store(Tensor::full({32}, tiny), StoredType::q8_0);
    CHECK(test::same_bits(load({"x", {32}, StoredType::q8_0, bytes}), Tensor::zeros({32})));
  }
}

TEST_CASE("stored types: what is written is read back, from any strides and dtype") {
  const Tensor x = Tensor::from({1, 0, -2, 0.5, 96, -96}, {2, 3}), whole = Tensor::from({1, 0, -2, 5, 96, -96}, {2, 3});
  for (const StoredType type : {StoredType::f64, StoredType::f32, StoredType::f16, StoredType::bf16}) {
    for (const DType dtype : {DType::float32, DType::float64, DType::bfloat16}) {
      INFO(name_of(type), " from ", name_of(dtype));
      const Bytes bytes = store(x.to(dtype).t(), type);
      CHECK(bytes.size() == stored_bytes(type, {3, 2}));
      CHECK(test::same_bits(load({"x", {3, 2}, type, bytes}, dtype), x.to(dtype).t()));
    }
  }
  for (const StoredType type : {StoredType::i32, StoredType::i64}) {
    for (const DType dtype : kDTypes) {
      if (dtype == DType::bool8) continue;
      const Bytes bytes = store(whole.to(dtype), type);
      CHECK(test::same_bits(load({"x", {2, 3}, type, bytes}), whole.to(DType::int32)));
      CHECK(test::same_bits(load({"x", {2, 3}, type, bytes}, dtype), whole.to(dtype)));
    }
  }
  CHECK(store(Tensor::from<std::int32_t>({-2, 7}), StoredType::i64) == bytes_of<std::int64_t>({-2, 7}));
  for (const DType dtype : kDTypes) {
    const Tensor flags = Tensor::from({1, 0, 1}).to(dtype);
    const Bytes bytes = store(flags, StoredType::boolean);
    CHECK(bytes == bytes_of<std::uint8_t>({1, 0, 1}));
    CHECK(test::same_bits(load({"x", {3}, StoredType::boolean, bytes}), flags.to(DType::bool8)));
    CHECK(test::same_bits(load({"x", {3}, StoredType::u8, bytes}, DType::bool8), flags.to(DType::bool8)));
  }
  for (const StoredType type : kTypes) {
    CHECK(load({"x", {2, 0}, type, {}}).shape() == Shape{2, 0});
    if (!is_quantized(type))
      CHECK(load({"x", {}, type, Bytes(static_cast<std::size_t>(bytes_per_block(type)))}).item() == 0);
  }
  const Bytes any_nonzero = bytes_of<std::uint8_t>({2, 0, 255});
  CHECK(test::same_bits(load({"x", {3}, StoredType::boolean, any_nonzero}), Tensor::from<bool>({1, 0, 1})));
}

TEST_CASE("stored types: infinities and NaN are kept") {
  const Tensor x = Tensor::from({test::kInf, -test::kInf, test::kNaN});
  for (const StoredType type : {StoredType::f64, StoredType::f32, StoredType::f16, StoredType::bf16}) {
    const Bytes bytes = store(x, type);
    for (const DType dtype : {DType::float32, DType::float64, DType::bfloat16}) {
      const Tensor y = load({"x", {3}, type, bytes}, dtype);
      CHECK(y.at({0}) == test::kInf);
      CHECK(y.at({1}) == -test::kInf);
      CHECK(std::isnan(y.at({2})));
    }
  }
}

TEST_CASE("stored types: tensors of many pieces are converted alike on any number of threads") {
  const Index n = 100'003;
  std::vector<std::int64_t> numbers(static_cast<std::size_t>(n));
  for (Index i = 0; i < n; ++i) numbers[static_cast<std::size_t>(i)] = i - 50'000;
  const Bytes bytes = bytes_of(numbers);
  const Tensor expected = Tensor::from(numbers);
  for (const int count : {1, 2, 3}) {
    set_threads(count);
    CHECK(test::same_bits(load({"x", {n}, StoredType::i64, bytes}), expected));
    CHECK(test::same_bits(load({"x", {n}, StoredType::i64, bytes}, DType::float64), expected.to(DType::float64)));
    CHECK(store(expected, StoredType::i64) == bytes);
    CHECK(store(expected.to(DType::float64), StoredType::i64) == bytes);
    std::vector<std::int64_t> bad = numbers;  // the first of several is reported
    for (const std::size_t at : {40'001u, 40'002u, 70'000u, 99'000u}) bad[at] = Index{1} << 31 | static_cast<Index>(at);
    const Bytes bad_bytes = bytes_of(bad);
    CHECK(error_of([&] {
            load({"x", {n, 1}, StoredType::i64, bad_bytes});
          }) ==
          "load: tensor 'x' is [100003, 1] I64 and has the value 2147523649 at [40001, 0]; it must be a number that "
          "int32 can hold");
  }
  set_threads(0);
}

TEST_CASE("load: errors name the tensor") {
  const auto refusal = [](StoredType type, const Bytes& bytes, std::optional<DType> dtype = {}) {
    const Shape shape = {static_cast<Index>(bytes.size()) / bytes_per_block(type)};
    return error_of([&] { load({"w\n", shape, type, bytes}, dtype); });
  };
  const std::string w = "load: tensor 'w\\n' is ";
  const Bytes large = bytes_of<std::int64_t>({1, -2147483649});
  CHECK(refusal(StoredType::i64, large) ==
        w + "[2] I64 and has the value -2147483649 at [1]; it must be a number that int32 can hold");
  CHECK(refusal(StoredType::i64, large, DType::float64) == refusal(StoredType::i64, large));
  CHECK(refusal(StoredType::u32, bytes_of<std::uint32_t>({2147483648})) ==
        w + "[1] U32 and has the value 2147483648 at [0]; it must be a number that int32 can hold");
  CHECK(refusal(StoredType::u64, bytes_of<std::uint64_t>({~std::uint64_t{0}})) ==
        w + "[1] U64 and has the value 18446744073709551615 at [0]; it must be a number that int32 can hold");
  CHECK(refusal(StoredType::f64, bytes_of<double>({0, 0, 1e300}), DType::float32) ==
        w + "[3] F64 and has the value 1e+300 at [2]; it must be a number that float32 can hold");
  CHECK(refusal(StoredType::f32, bytes_of<float>({3.4e38f}), DType::bfloat16) ==
        w + "[1] F32 and has the value 3.4e+38 at [0]; it must be a number that bfloat16 can hold");
  CHECK(refusal(StoredType::f32, bytes_of<float>({0.5f}), DType::int32) ==
        w + "[1] F32 and has the value 0.5 at [0]; it must be a number that int32 can hold");
  CHECK(refusal(StoredType::bf16, store(Tensor::from({1, NAN}), StoredType::bf16), DType::int32) ==
        w + "[2] BF16 and has the value nan at [1]; it must be a number that int32 can hold");
  CHECK(refusal(StoredType::u8, bytes_of<std::uint8_t>({1, 2}), DType::bool8) ==
        w + "[2] U8 and has the value 2 at [1]; it must be a number that bool8 can hold");

  CHECK(error_of([&] {
          load({"w\n", {2, -1}, StoredType::f32, {}});
        }) == w + "[2, -1] F32; its sizes must be at least 0, and their product at most 2^60");
  CHECK(error_of([&] {
          load({"w\n", {Index{1} << 40, Index{1} << 40}, StoredType::q8_0, {}});
        }) == w + "[1099511627776, 1099511627776] Q8_0; its sizes must be at least 0, and their product at most 2^60");
  CHECK(error_of([&] {
          load({"w\n", {2, 33}, StoredType::q4_1, {}});
        }) == w + "[2, 33] Q4_1; its last axis must be a multiple of 32");
  CHECK(error_of([&] {
          load({"w\n", {}, StoredType::q6_k, {}});
        }) == w + "[] Q6_K; its last axis must be a multiple of 256");
  CHECK(error_of([&] {
          load({"w\n", {2}, StoredType::f32, Bytes(9)});
        }) == w + "[2] F32 and has 9 bytes; it must have 8");
  CHECK(error_of([&] {
          load({std::string(500, 'x'), {2}, StoredType::f32, {}});
        }) == "load: tensor '" + std::string(80, 'x') + "...' is [2] F32 and has 0 bytes; it must have 8");
}

TEST_CASE("store: errors name the number or the type") {
  const auto refusal = [](const Tensor& x, StoredType type) { return error_of([&] { store(x, type); }); };
  for (const StoredType type : {StoredType::i16, StoredType::i8, StoredType::u64, StoredType::u32, StoredType::u16,
                                StoredType::u8, StoredType::q4_0, StoredType::q4_1, StoredType::q4_k, StoredType::q6_k})
    CHECK(refusal(Tensor::zeros({256}), type) == "store: the type is " + std::string(name_of(type)) +
                                                     "; it must be F64, F32, F16, BF16, I64, I32, BOOL or Q8_0");
  CHECK(refusal(Tensor(), StoredType::f32) == "store: x is undefined; it must have values");
  CHECK(refusal(Tensor::zeros({32, 2}), StoredType::q8_0) ==
        "store: x is [32, 2] float32; for Q8_0 its last axis must be a multiple of 32");
  CHECK(refusal(Tensor::from({1, 65519, 65520, 7e4}, {2, 2}), StoredType::f16) ==
        "store: x is [2, 2] float32 and has the value 65520 at [1, 0]; it must be a number that F16 can hold");
  CHECK(refusal(Tensor::from<double>({-1e300}), StoredType::f16) ==
        "store: x is [1] float64 and has the value -1e+300 at [0]; it must be a number that F16 can hold");
  CHECK(refusal(Tensor::from<double>({1e39}), StoredType::f32) ==
        "store: x is [1] float64 and has the value 1e+39 at [0]; it must be a number that F32 can hold");
  CHECK(refusal(Tensor::from({1, 1.5}), StoredType::i32) ==
        "store: x is [2] float32 and has the value 1.5 at [1]; it must be a number that I32 can hold");
  CHECK(refusal(Tensor::from({-2147483648.0, 2147483648.0}), StoredType::i64) ==
        "store: x is [2] float32 and has the value 2.14748e+09 at [1]; it must be a number that I64 can hold");
  CHECK(refusal(Tensor::from({1, 2}), StoredType::boolean) ==
        "store: x is [2] float32 and has the value 2 at [1]; it must be a number that BOOL can hold");
  for (const auto& [bad, text] : std::vector<std::pair<double, std::string>>{
           {NAN, "nan"}, {test::kInf, "inf"}, {-test::kInf, "-inf"}, {-8.33e6, "-8.33e+06"}}) {
    Tensor x = Tensor::ones({2, 64});
    x[1].slice(0, 40, 41).fill_(bad);
    CHECK(refusal(x, StoredType::q8_0) == "store: x is [2, 64] float32 and has the value " + text +
                                              " at [1, 40]; it must be a number that Q8_0 can hold");
  }
  CHECK(refusal(Tensor::full({32}, 8.3e6), StoredType::q8_0).empty());
}

TEST_CASE("load and store: blocks of quantized dtypes stay as they are, and all types can become q8_0") {
  const Tensor x = test::normal({3, 256}, 1, DType::float32);
  const std::vector<std::byte> bytes = store(x, StoredType::q8_0);
  const Tensor q = load({"q", x.shape(), StoredType::q8_0, bytes}, DType::q8_0);
  CHECK(q.dtype() == DType::q8_0);
  CHECK(store(q, StoredType::q8_0) == bytes);
  CHECK(test::same_bits(q.to(DType::float32), load({"q", x.shape(), StoredType::q8_0, bytes})));
  CHECK(store(q, StoredType::f16) == store(q.to(DType::float32), StoredType::f16));
  for (const StoredType type : {StoredType::f32, StoredType::f16, StoredType::bf16, StoredType::f64}) {
    const std::vector<std::byte> numbers = store(x, type);
    const StoredTensor stored{"x", x.shape(), type, numbers};
    CHECK(store(load(stored, DType::q8_0), StoredType::q8_0) == store(load(stored, DType::float32), StoredType::q8_0));
  }
  CHECK(quantized_dtype(StoredType::q4_1) == DType::q4_1);
  CHECK_FALSE(quantized_dtype(StoredType::q6_k).has_value());
  CHECK(stored_type_for(DType::q4_0) == StoredType::q4_0);
  CHECK(test::contains(test::error_of([&] {
                         load({"x", x.shape(), StoredType::q8_0, bytes}, DType::q4_0);
                       }),
                       "load: tensor 'x' is [3, 256] Q8_0; it cannot become q4_0"));
  CHECK(test::contains(test::error_of([&] { store(q, StoredType::q4_0); }), "store: the type is Q4_0"));
}

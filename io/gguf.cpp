// Opens GGUF files, and the rules that reader and writer share.
#include <bit>
#include <heed/core/check.hpp>
#include <heed/data/detail/mapped_file.hpp>
#include <heed/io/detail/gguf_format.hpp>
#include <heed/io/gguf.hpp>
#include <iterator>

namespace heed {
namespace {

// Names of the types of metadata, in the order of GgufValue.
constexpr std::string_view kGgufValueTypes[] = {"uint8", "int8",   "uint16", "int16",  "uint32", "int32",  "float32",
                                                "bool",  "string", "array",  "uint64", "int64",  "float64"};
static_assert(std::size(kGgufValueTypes) == std::variant_size_v<GgufValue>);
static_assert(std::size(kGgufValueTypes) == std::variant_size_v<GgufArray::Values>);

}  // namespace

std::string_view type_name(const GgufValue& value) { return kGgufValueTypes[value.index()]; }

namespace detail {

// ggml removed the types of the missing numbers.
constexpr GgufType kGgufTypes[] = {
    {0, "F32"},      {1, "F16"},       {2, "Q4_0"},      {3, "Q4_1"},      {6, "Q5_0"},    {7, "Q5_1"},   {8, "Q8_0"},
    {9, "Q8_1"},     {10, "Q2_K"},     {11, "Q3_K"},     {12, "Q4_K"},     {13, "Q5_K"},   {14, "Q6_K"},  {15, "Q8_K"},
    {16, "IQ2_XXS"}, {17, "IQ2_XS"},   {18, "IQ3_XXS"},  {19, "IQ1_S"},    {20, "IQ4_NL"}, {21, "IQ3_S"}, {22, "IQ2_S"},
    {23, "IQ4_XS"},  {24, "I8"},       {25, "I16"},      {26, "I32"},      {27, "I64"},    {28, "F64"},   {29, "IQ1_M"},
    {30, "BF16"},    {31, "Q4_0_4_4"}, {32, "Q4_0_4_8"}, {33, "Q4_0_8_8"}, {34, "TQ1_0"},  {35, "TQ2_0"}, {39, "MXFP4"},
    {40, "NVFP4"},   {41, "Q1_0"}};

const GgufType* gguf_type(std::uint32_t number) {
  for (const GgufType& type : kGgufTypes)
    if (type.number == number) return &type;
  return nullptr;
}

std::optional<std::uint32_t> gguf_number(StoredType type) {
  for (const GgufType& t : kGgufTypes)
    if (t.name == name_of(type)) return t.number;
  return std::nullopt;
}

std::size_t gguf_alignment(const GgufMetadata& metadata, const std::string& who) {
  constexpr std::uint32_t kDefault = 32, kMin = 8, kMax = std::uint32_t{1} << 20;
  const auto found = metadata.find(kGgufAlignmentKey);
  if (found == metadata.end()) return kDefault;
  const auto* alignment = std::get_if<std::uint32_t>(&found->second);
  require(alignment != nullptr, who, ": '", kGgufAlignmentKey, "' is of type ", type_name(found->second),
          "; it must be uint32");
  require(std::has_single_bit(*alignment) && *alignment >= kMin && *alignment <= kMax, who, ": '", kGgufAlignmentKey,
          "' is ", *alignment, "; it must be a power of two from ", kMin, " to ", kMax);
  return *alignment;
}

void check_gguf_name(std::string_view name, const std::string& who) {
  require(!name.empty() && name.size() <= kMaxGgufName && name.find('\0') == name.npos, who,
          ": the name of a tensor is '", excerpt(name), "', of ", name.size(), " bytes; it must have from 1 to ",
          kMaxGgufName, " bytes, none of them zero");
}

void check_gguf_key(std::string_view key, const std::string& who) {
  require(!key.empty() && key.size() <= kMaxGgufKey && key.find('\0') == key.npos, who, ": a key of the metadata is '",
          excerpt(key), "', of ", key.size(), " bytes; it must have from 1 to ", kMaxGgufKey,
          " bytes, none of them zero");
}

}  // namespace detail

GgufFile::GgufFile(const std::filesystem::path& file)
    : name_(file.string()), mapping_(std::make_shared<detail::MappedFile>("GGUF file", file)) {
  detail::GgufContents contents = detail::parse_gguf(mapping_->bytes(), "GGUF file: " + name_);
  metadata_ = std::move(contents.metadata);
  tensors_ = std::move(contents.tensors);
}

const StoredTensor& GgufFile::tensor(std::string_view name) const {
  const auto found = tensors_.find(name);
  require(found != tensors_.end(), "GGUF file: ", name_, " has no tensor '", excerpt(name), "'");
  return found->second;
}

void GgufFile::forget(const StoredTensor& tensor) const { mapping_->forget(tensor.bytes); }

const GgufValue& GgufFile::value(std::string_view key) const {
  const auto found = metadata_.find(key);
  require(found != metadata_.end(), "GGUF file: ", name_, " has no '", excerpt(key), "' in its metadata");
  return found->second;
}

void GgufFile::refuse(std::string_view key, std::string_view wanted) const {
  fail("GGUF file: ", name_, ": '", excerpt(key), "' is of type ", type_name(value(key)), "; it must be ", wanted);
}

void GgufFile::refuse_array(std::string_view key, const GgufArray& wanted) const {
  const auto* array = std::get_if<GgufArray>(&value(key));
  const std::string_view type = kGgufValueTypes[wanted.values.index()];
  if (array == nullptr) refuse(key, "an array of " + std::string(type));
  fail("GGUF file: ", name_, ": '", excerpt(key), "' is an array of ", kGgufValueTypes[array->values.index()],
       "; it must be an array of ", type);
}

std::uint64_t GgufFile::number(std::string_view key) const {
  return std::visit(
      [&]<class T>(const T& x) -> std::uint64_t {
        if constexpr (std::is_integral_v<T> && !std::is_same_v<T, bool>) {
          require(x >= 0, "GGUF file: ", name_, ": '", excerpt(key), "' is ", +x, "; it must be at least 0");
          return static_cast<std::uint64_t>(x);
        } else {
          refuse(key, "an integer");
        }
      },
      value(key));
}

double GgufFile::real(std::string_view key) const {
  return std::visit(
      [&]<class T>(const T& x) -> double {
        if constexpr (std::is_arithmetic_v<T> && !std::is_same_v<T, bool>) {
          return static_cast<double>(x);
        } else {
          refuse(key, "a number");
        }
      },
      value(key));
}

bool GgufFile::flag(std::string_view key) const {
  const auto* x = std::get_if<bool>(&value(key));
  if (x == nullptr) refuse(key, "a bool");
  return *x;
}

const std::string& GgufFile::text(std::string_view key) const {
  const auto* x = std::get_if<std::string>(&value(key));
  if (x == nullptr) refuse(key, "a string");
  return *x;
}

}  // namespace heed

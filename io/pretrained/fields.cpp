// Reads and writes the fields of configurations.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <heed/io/pretrained/fields.hpp>
#include <iterator>

namespace heed::detail::pretrained {

namespace {

constexpr Index kMaxSize = Index{1} << 24;

// The number of GGUF's float32 that was meant: 1e-05, not 9.99999974737875e-06.
double nearest_decimal(float x) {
  char digits[32];
  const auto end = std::to_chars(digits, digits + sizeof digits, x).ptr;
  double nearest = x;
  std::from_chars(digits, end, nearest);
  return nearest;
}

}  // namespace

void ModelFields::must(const FieldKey& key, bool found) const {
  if (!found && reads()) fail_at(key, "is missing");
}

bool JsonReader::use(const FieldKey& key) {
  if (*key.json == 0) return false;
  used_.emplace(key.json);
  return view_.has(key.json);
}
bool JsonReader::move(const FieldKey& key, Index& value) {
  if (!use(key)) return false;
  value = view_.at(key.json).integer(1, kMaxSize);
  return true;
}
bool JsonReader::move(const FieldKey& key, double& value) {
  if (!use(key)) return false;
  const double x = view_.at(key.json).number();
  if (!(x >= 0) || !std::isfinite(x)) fail_at(key, "is ", x, "; it must be a number of at least 0");
  value = x;
  return true;
}
bool JsonReader::move(const FieldKey& key, bool& value) {
  if (!use(key)) return false;
  value = view_.at(key.json).boolean();
  return true;
}
bool JsonReader::move(const FieldKey& key, std::string& value) {
  if (!use(key)) return false;
  value = view_.at(key.json).text();
  return true;
}
void JsonReader::finish() const {
  for (const auto& [name, value] : view_.members())
    if (!used_.contains(name) && !value.is(JsonValue::Kind::null))
      value.refuse("is a field that heed does not know for this model; its effect would be lost");
}

bool JsonWriter::set(const FieldKey& key, JsonValue value) {
  if (*key.json != 0) object_.set(key.json, std::move(value));
  return *key.json != 0;
}

bool GgufReader::use(const FieldKey& key) {
  if (*key.gguf == 0) return false;
  used_.insert(key.in_gguf(prefix_));
  return has(key);
}
bool GgufReader::move(const FieldKey& key, Index& value) {
  if (!use(key)) return false;
  const std::uint64_t n = file_.number(key.in_gguf(prefix_));
  if (n < 1 || n > static_cast<std::uint64_t>(kMaxSize)) fail_at(key, "is ", n, "; it must be from 1 to ", kMaxSize);
  value = static_cast<Index>(n);
  return true;
}
bool GgufReader::move(const FieldKey& key, double& value) {
  if (!use(key)) return false;
  const auto x = static_cast<float>(file_.real(key.in_gguf(prefix_)));
  if (!(x >= 0) || !std::isfinite(x)) fail_at(key, "is ", x, "; it must be a number of at least 0");
  value = nearest_decimal(x);
  return true;
}
bool GgufReader::move(const FieldKey& key, bool& value) {
  if (!use(key)) return false;
  value = file_.flag(key.in_gguf(prefix_));
  return true;
}
bool GgufReader::move(const FieldKey& key, std::string& value) {
  if (!use(key)) return false;
  value = file_.text(key.in_gguf(prefix_));
  return true;
}
// The fields without effect here: a size that the tensors have, too, how a model was made, and what load_pretrained()
// reads itself.
void GgufReader::finish() const {
  constexpr std::string_view kWithoutEffect[] = {"vocab_size", "rope.scaling.finetuned", "tensor_data_layout",
                                                 "pooling_type"};
  for (const auto& [key, value] : file_.metadata()) {
    if (!key.starts_with(prefix_) || used_.contains(key)) continue;
    const std::string_view name = std::string_view(key).substr(prefix_.size());
    require(std::ranges::find(kWithoutEffect, name) != std::end(kWithoutEffect), file_.name(), ": ", excerpt(key),
            " is a field that heed does not know for this model; its effect would be lost");
  }
}

bool GgufWriter::set(const FieldKey& key, GgufValue value) {
  if (*key.gguf != 0) metadata_.insert_or_assign(key.in_gguf(prefix_), std::move(value));
  return *key.gguf != 0;
}

}  // namespace heed::detail::pretrained

// Messages in protobuf's wire format, written and read without the protobuf library, whose symbols clash with those of
// other libraries in one process. Source: https://protobuf.dev/programming-guides/encoding/. Internal.
#pragma once
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>

namespace heed::detail {

// The bytes of a message. Each call appends a field, given by its number. Fields must be appended in the order of their
// numbers to give the bytes that protobuf itself writes.
class ProtobufMessage {
 public:
  // An int32, int64, bool or enum. A negative number has 10 bytes.
  void integer(int field, std::int64_t value) {
    key(field, 0);
    varint(static_cast<std::uint64_t>(value));
  }
  // A float.
  void real(int field, float value) {
    static_assert(std::endian::native == std::endian::little);
    key(field, 5);
    bytes_.append(reinterpret_cast<const char*>(&value), sizeof value);
  }
  // A string, bytes or a message.
  void text(int field, std::string_view bytes) {
    begin(field, bytes.size());
    bytes_ += bytes;
  }
  // A message as a field.
  void message(int field, const ProtobufMessage& message) { text(field, message.bytes_); }
  // The beginning of a string, bytes or a message, whose `size` bytes must follow.
  void begin(int field, std::size_t size) {
    key(field, 2);
    varint(size);
  }

  // The fields of another message.
  void append(const ProtobufMessage& fields) { bytes_ += fields.bytes_; }

  const std::string& bytes() const { return bytes_; }  // all fields
  std::size_t size() const { return bytes_.size(); }   // in bytes

 private:
  void key(int field, int wire_type) {
    varint(static_cast<std::uint64_t>(field) << 3 | static_cast<unsigned>(wire_type));
  }
  // 7 bits per byte, the lowest first. The highest bit of a byte is set if another byte follows.
  void varint(std::uint64_t value) {
    for (; value >= 128; value >>= 7) bytes_ += static_cast<char>(value | 128);
    bytes_ += static_cast<char>(value);
  }

  std::string bytes_;
};

// Reads the fields of a message in their order:
//   for (ProtobufFields f(bytes); f.next();)
//     if (f.number() == 1) names.push_back(std::string(f.text()));
class ProtobufFields {
 public:
  explicit ProtobufFields(std::string_view bytes) : rest_(bytes) {}

  // Goes to the next field. Returns false at the end, and if the bytes are damaged.
  bool next() {
    const std::optional<std::uint64_t> key = varint();
    if (!key || *key >> 3 == 0 || *key >> 3 > 0x1FFFFFFF) return false;
    number_ = static_cast<int>(*key >> 3);
    value_ = 0, text_ = {};
    switch (*key & 7) {
      case 0: return integer_follows();
      case 1: return bytes_follow(8);
      case 2: return integer_follows() && bytes_follow(value_);
      case 5: return bytes_follow(4);
      default: return false;
    }
  }
  int number() const { return number_; }
  std::uint64_t integer() const { return value_; }  // of an int32, int64, bool or enum
  std::string_view text() const { return text_; }   // of a string, bytes or a message
  float real() const {                              // of a float; 0 for another type
    float x = 0;
    if (text_.size() == sizeof x) std::memcpy(&x, text_.data(), sizeof x);
    return x;
  }
  bool is_at_end() const { return rest_.empty(); }  // false after next() has failed: the bytes are damaged

 private:
  std::optional<std::uint64_t> varint() {
    std::uint64_t value = 0;
    for (int shift = 0; !rest_.empty() && shift < 64; shift += 7) {
      const auto byte = static_cast<unsigned char>(rest_.front());
      rest_.remove_prefix(1);
      value |= static_cast<std::uint64_t>(byte & 0x7F) << shift;
      if (byte < 0x80) return value;
    }
    return {};
  }
  bool integer_follows() {
    const std::optional<std::uint64_t> value = varint();
    value_ = value.value_or(0);
    return value.has_value();
  }
  bool bytes_follow(std::uint64_t count) {
    if (count > rest_.size()) return false;
    text_ = rest_.substr(0, static_cast<std::size_t>(count));
    rest_.remove_prefix(text_.size());
    return true;
  }

  std::string_view rest_, text_;
  int number_ = 0;
  std::uint64_t value_ = 0;
};

}  // namespace heed::detail

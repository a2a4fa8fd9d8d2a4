// Messages in protobuf's wire format, written without the protobuf library, whose symbols clash with those of other
// libraries in one process. Source: https://protobuf.dev/programming-guides/encoding/. Internal.
#pragma once
#include <bit>
#include <cstddef>
#include <cstdint>
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

}  // namespace heed::detail

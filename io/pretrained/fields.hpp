// The configuration of a model as its fields in config.json and in GGUF's metadata. A family of models lists its
// fields once, for reading and writing both.
#pragma once
#include <heed/core/shape.hpp>
#include <heed/io/gguf.hpp>
#include <heed/io/json.hpp>
#include <initializer_list>
#include <ios>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace heed::detail::pretrained {

// The names of a field: in config.json, and in GGUF after the architecture ("attention.head_count"), or as a whole
// ("tokenizer.ggml.token_type_count"). An empty name: that format has no such field.
struct FieldKey {
  const char* json = "";
  const char* gguf = "";
  // The key in GGUF's metadata; the other name if GGUF has no such field. `prefix`: the architecture and a dot.
  std::string in_gguf(const std::string& prefix) const {
    if (*gguf == 0) return json;
    return std::string_view(gguf).starts_with("tokenizer.") ? gguf : prefix + gguf;
  }
};

// A configuration that is read or written, in one of the formats. Reading throws Error, which names the file and the
// field, for a value of another type or out of range, and in finish() for a field that nobody has read.
class ModelFields {
 public:
  virtual ~ModelFields() = default;

  virtual bool reads() const = 0;
  virtual bool gguf() const = 0;
  virtual bool has(const FieldKey& key) const = 0;  // reading: whether there is such a field, and not null

  // A field that must be there: a size from 1 to 2^24, a number above 0, a flag, a word.
  void operator()(const FieldKey& key, Index& value) { must(key, move(key, value)); }
  void operator()(const FieldKey& key, double& value) { must(key, move(key, value)); }
  void operator()(const FieldKey& key, bool& value) { must(key, move(key, value)); }
  void operator()(const FieldKey& key, std::string& value) { must(key, move(key, value)); }
  // A field with a default. It is always written.
  template <class T>
  void or_else(const FieldKey& key, T& value, const T& otherwise) {
    if (!move(key, value) && reads()) value = otherwise;
  }
  // A field for which heed has one value only. Reading: missing, or equal to it. Throws Error otherwise.
  template <class T>
  void only(const FieldKey& key, const T& value) {
    T given = value;
    if (move(key, given) && given != value)
      fail_at(key, "is ", std::boolalpha, given, "; heed supports only ", std::boolalpha, value);
  }
  // Fields of config.json that change no result of heed, at any value.
  virtual void without_effect(std::initializer_list<std::string_view> names) = 0;
  // The fields of config.json for code that needs more than the above; null unless config.json is read.
  virtual const JsonView* json() const { return nullptr; }
  virtual void mark_used(std::string_view) {}
  // The object to which config.json is written; null otherwise.
  virtual JsonValue* json_to_write() { return nullptr; }
  // Ends reading: throws Error for a field that was not used.
  virtual void finish() const {}
  // Throws Error: "config.json: head_dim ", followed by the parts.
  template <class... Parts>
  [[noreturn]] void fail_at(const FieldKey& key, const Parts&... parts) const {
    fail(place(key), " ", parts...);
  }

 protected:
  // Reading: sets the value, or returns false if there is none. Writing: writes it.
  virtual bool move(const FieldKey& key, Index& value) = 0;
  virtual bool move(const FieldKey& key, double& value) = 0;
  virtual bool move(const FieldKey& key, bool& value) = 0;
  virtual bool move(const FieldKey& key, std::string& value) = 0;
  virtual std::string place(const FieldKey& key) const = 0;  // "config.json: head_dim"

 private:
  void must(const FieldKey& key, bool found) const;
};

// Reads config.json.
class JsonReader final : public ModelFields {
 public:
  explicit JsonReader(JsonView view) : view_(std::move(view)) {}
  bool reads() const override { return true; }
  bool gguf() const override { return false; }
  bool has(const FieldKey& key) const override { return *key.json != 0 && view_.has(key.json); }
  void without_effect(std::initializer_list<std::string_view> names) override {
    used_.insert(names.begin(), names.end());
  }
  const JsonView* json() const override { return &view_; }
  void mark_used(std::string_view name) override { used_.emplace(name); }
  void finish() const override;

 protected:
  bool move(const FieldKey& key, Index& value) override;
  bool move(const FieldKey& key, double& value) override;
  bool move(const FieldKey& key, bool& value) override;
  bool move(const FieldKey& key, std::string& value) override;
  std::string place(const FieldKey& key) const override { return view_.source() + ": " + key.json; }

 private:
  bool use(const FieldKey& key);

  JsonView view_;
  std::set<std::string, std::less<>> used_;
};

// Writes config.json.
class JsonWriter final : public ModelFields {
 public:
  explicit JsonWriter(JsonValue& object) : object_(object) {}
  bool reads() const override { return false; }
  bool gguf() const override { return false; }
  bool has(const FieldKey&) const override { return true; }
  void without_effect(std::initializer_list<std::string_view>) override {}
  JsonValue* json_to_write() override { return &object_; }

 protected:
  bool move(const FieldKey& key, Index& value) override { return set(key, JsonValue::of_integer(value)); }
  bool move(const FieldKey& key, double& value) override { return set(key, JsonValue::of(value)); }
  bool move(const FieldKey& key, bool& value) override { return set(key, JsonValue::of(value)); }
  bool move(const FieldKey& key, std::string& value) override { return set(key, JsonValue::of(value)); }
  std::string place(const FieldKey& key) const override { return std::string("config.json: ") + key.json; }

 private:
  bool set(const FieldKey& key, JsonValue value);

  JsonValue& object_;
};

// Reads the metadata of a GGUF file.
class GgufReader final : public ModelFields {
 public:
  explicit GgufReader(const GgufFile& file) : file_(file), prefix_(file.text("general.architecture") + ".") {}
  bool reads() const override { return true; }
  bool gguf() const override { return true; }
  bool has(const FieldKey& key) const override { return *key.gguf != 0 && file_.has(key.in_gguf(prefix_)); }
  void without_effect(std::initializer_list<std::string_view>) override {}
  void finish() const override;

 protected:
  bool move(const FieldKey& key, Index& value) override;
  bool move(const FieldKey& key, double& value) override;
  bool move(const FieldKey& key, bool& value) override;
  bool move(const FieldKey& key, std::string& value) override;
  std::string place(const FieldKey& key) const override { return file_.name() + ": " + key.in_gguf(prefix_); }

 private:
  bool use(const FieldKey& key);

  const GgufFile& file_;
  std::string prefix_;
  std::set<std::string, std::less<>> used_;  // keys
};

// Writes the metadata of a GGUF file.
class GgufWriter final : public ModelFields {
 public:
  GgufWriter(GgufMetadata& metadata, const std::string& architecture)
      : metadata_(metadata), prefix_(architecture + ".") {}
  bool reads() const override { return false; }
  bool gguf() const override { return true; }
  bool has(const FieldKey&) const override { return true; }
  void without_effect(std::initializer_list<std::string_view>) override {}

 protected:
  bool move(const FieldKey& key, Index& value) override { return set(key, static_cast<std::uint32_t>(value)); }
  bool move(const FieldKey& key, double& value) override { return set(key, static_cast<float>(value)); }
  bool move(const FieldKey& key, bool& value) override { return set(key, value); }
  bool move(const FieldKey& key, std::string& value) override { return set(key, value); }
  std::string place(const FieldKey& key) const override { return key.in_gguf(prefix_); }

 private:
  bool set(const FieldKey& key, GgufValue value);

  GgufMetadata& metadata_;
  std::string prefix_;
};

}  // namespace heed::detail::pretrained

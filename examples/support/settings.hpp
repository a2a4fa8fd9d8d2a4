// The settings of a program. Each is declared once, by a call in the function fields() of the program's struct. Its
// flag, its place in a checkpoint, the checks of a stored value, and what --resume and --init may change follow from
// that call.
//
//   struct Settings {
//     Index layers = 2;
//     double lr = 1e-3;
//     void fields(SettingFields& f) {
//       f("layers", layers, Kind::model, "Blocks [2]", whole(1));
//       f("lr", lr, Kind::run, "Learning rate [1e-3]", number(0));
//     }
//   };
//   Settings given;
//   SettingFields(given).add_flags(line);  // --layers, --lr
//   ...
//   Settings s;                            // a resumed run: its checkpoint's settings, with the flags that may change
//   SettingFields(s).read(StoredSettings(checkpoint.text("settings"), "lm.h5"));
//   print_changed(SettingFields(s).resume(line, SettingFields(given)));
//   options.texts.insert({"settings", SettingFields(s).json()});  // {"layers":2,"lr":0.001}
#pragma once
#include <heed/data/checkpoint.hpp>
#include <heed/layers/model_config.hpp>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "examples/support/command_line.hpp"

namespace heed::examples {

// What a setting determines, and so whether a resumed run may change it.
enum class Kind {
  start,     // the start of the run: fixed
  model,     // the weights: fixed, and --init takes it from the model
  data,      // the data: may change with --other-data
  training,  // later steps: may change
  run        // later steps, as an option of run(), which reports the change itself
};

// A setting, bound to a member of a struct.
struct Setting {
  using Json = nlohmann::ordered_json;

  std::string name;  // "min-lr": of the flag --min-lr, and in checkpoints
  FlagValue value;   // refers to the member
  Kind kind;
  std::string text, group;  // in --help
  Takes takes;              // not for a switch
  FlagRules rules;
  bool stored = true;  // false: left out of checkpoints, because it has its default

  // A file name that is not UTF-8, as JSON requires, is {"hex": its bytes}.
  Json json() const;
  void set(const Json& json) const;
  // The error for a stored value of another type, or one that the flag refuses; empty for right values and for the
  // present one, which may be a default that the flag does not take.
  std::string error(const Json& given) const;
};

// A setting of a checkpoint that a flag changes.
struct ChangedSetting {
  std::string name, before, now;  // "dropout", "0.0", "0.1"
  Kind kind;
};
// Prints the changed settings to stderr, except those that run() reports.
void print_changed(const std::vector<ChangedSetting>& changed);

// The settings in a checkpoint's file.
class StoredSettings {
 public:
  StoredSettings(const std::string& json, const std::string& file);  // Error unless a JSON object
  explicit StoredSettings(const Checkpoint& c) : StoredSettings(c.text("settings"), c.source) {}
  bool has(const std::string& name) const { return json_.contains(name); }
  std::set<std::string> names() const;

 private:
  friend class SettingFields;
  Setting::Json json_;
  std::string file_;
};

// What a program adds to an option of a model.
struct OptionNote {
  std::string defaults = {};  // in --help: "by preset"; empty: the default of the option
  Kind kind = Kind::model;
  std::optional<Takes> takes = {};  // instead of all values that the model takes
  bool always_stored = false;       // in checkpoints even if JSON omits it
};

// The argument of fields(): the list of a struct's settings. It refers to the struct.
class SettingFields {
 public:
  SettingFields() = default;
  template <class S>
  explicit SettingFields(S& settings) {
    settings.fields(*this);
  }

  // Declares a setting. Without `takes`, its flag is a switch. The result is valid until the next call.
  Setting& operator()(const std::string& name, FlagValue value, Kind kind, const std::string& text,
                      const Takes& takes = {}, const FlagRules& rules = {});
  // Declares a setting whose text ends with its default, the present value: "Layers [3]".
  Setting& counted(const std::string& name, Index& value, Kind kind, const std::string& text,
                   const Takes& takes = whole(1)) {
    return (*this)(name, value, kind, text + " [" + std::to_string(value) + "]", takes);
  }
  // Declares a setting for each field of `options` that has a description. Notes are by the names of fields.
  template <HasFields O>
  void options(O& options, const std::map<std::string, OptionNote>& notes) {
    for (const OptionField& field : list_fields(options))
      if (!field.text.empty()) option(field, notes.contains(field.name) ? notes.at(field.name) : OptionNote());
  }
  void group(const std::string& title) { group_ = title; }  // in --help, of the next settings
  // Names that are first in checkpoints, in this order; new settings follow.
  void order(const std::vector<std::string>& names) { order_ = names; }

  void add_flags(CommandLine& line) const;  // adds a flag for each setting
  std::string json() const;                 // for a checkpoint
  const std::vector<Setting>& list() const { return list_; }
  std::set<std::string> names(Kind kind) const;

  // Sets the settings that a checkpoint has; of one kind, or all. Throws Error for a wrong value.
  void read(const StoredSettings& stored, std::optional<Kind> kind = {}) const;
  // Sets the settings that flags of `line` give. `given` lists the struct that the flags filled.
  void take(const CommandLine& line, const SettingFields& given) const;
  // As take(), after these settings were set from a checkpoint that the run resumes. Returns those that change. Throws
  // UsageError for one that must not; but names of files may differ, because files may have been moved.
  std::vector<ChangedSetting> resume(const CommandLine& line, const SettingFields& given, bool other_data) const;
  // As take(), after these settings were set from the model in `file`. Throws UsageError if a flag contradicts it.
  void init(const CommandLine& line, const SettingFields& given, const std::string& file) const;

 private:
  std::vector<Setting> list_ = {};
  std::vector<std::string> order_ = {};
  std::string group_ = "Options";

  void option(const OptionField& field, const OptionNote& note);
  template <class Check>
  void take_each(const CommandLine& line, const SettingFields& given, const Check& check) const;
};

// Where each setting of a run was set, for messages: a flag is named only if it was given.
class SettingOrigins {
 public:
  // All settings are given by flags or have their defaults.
  SettingOrigins(const CommandLine& line) : line_(line) {}  // implicit
  // Settings with the names in `stored` come from a checkpoint's file.
  SettingOrigins(const CommandLine& line, std::string file, std::set<std::string> stored)
      : line_(line), file_(std::move(file)), stored_(std::move(stored)) {}

  // Describes the setting of a flag (--steps): "--steps is 5", "steps is 5 (stored in lm.h5)" or "steps is 5 (the
  // default)".
  std::string describe(const std::string& flag, const std::string& value) const;
  const CommandLine& line() const { return line_; }

 private:
  const CommandLine& line_;
  std::string file_ = {};
  std::set<std::string> stored_ = {};
};

}  // namespace heed::examples

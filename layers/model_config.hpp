// Configurations of models, as structs and as JSON for checkpoints; and mechanisms by name, for command lines and
// checkpoints.
//
// Example:
//
//   Rng rng(1);
//   const GPTConfig config{.options = {.vocabulary = 65}, .attention = "window", .mechanism = {.window = 16}};
//   GPT model(config.options, rng, config.factory());
//   const std::string text = to_json(config);               // {"model":"gpt","vocabulary":65, ... ,"window":16}
//   const auto same = from_json<GPTConfig>(text, "lm.h5");  // error messages name lm.h5
//
//   struct MyOptions {  // your own options convert to and from JSON, with the same errors
//     Index layers = 2;
//     double dropout = 0;
//     void fields(OptionFields& f) { f("layers", layers, 1), f("dropout", dropout); }
//   };
//   std::cout << to_json(MyOptions());
#pragma once
#include <functional>
#include <heed/layers/gpt.hpp>
#include <heed/layers/transformer.hpp>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace heed {

// Options of mechanisms by name. Each mechanism reads the options that mechanism_options() lists for it. 0 is the
// default given there. Only the stride, and the rows for a short context, have defaults that depend on the context. So
// work that is linear in the length stays linear in models of any context.
struct MechanismOptions {
  bool causal = true;               // calls are causal; `efficient` has a form for each case
  bool memory = false;              // attention to another sequence, as in a decoder; then causal is not read
  std::string feature_map = "elu";  // linear
  std::string synthesizer = {};     // synthesizer: the kind; empty: dense
  double elu_alpha = 0;             // linear with the map elu
  Index heads = 0, head_size = 0;   // of the layer; for mechanisms with parameters, favor, lsh and reformer
  Index value_size = 0;             // of the layer; 0: head_size; shaw, nezha, longformer, luna, rules with a state
  // Maximum number of positions: luong-location, synthesizer, linformer, strided and fixed.
  Index context = 0;
  double rbf_width = 0;             // rbf
  Index degree = 0;                 // polynomial
  Index window = 0;                 // window and longformer; lsh, per round
  std::string dilation = {};        // window: a number; longformer: one, or one per head, "1,2"; empty: 1
  std::string globals = {};         // window and longformer: positions, "0,7"; empty: none; longformer: 0
  // window, linear and rules with a state: layers n, 2 n, ... are softmax attention to all keys.
  Index global_every = 0;
  Index stride = 0;                 // strided; fixed: size of a block
  Index top_k = 0;                  // top-k
  Index max_distance = 0;           // shaw and nezha
  Index rows = 0;                   // linformer: number of projected keys
  Index memory_size = 0;            // luna: vectors of the memory
  Index rounds = 0, buckets = 0;    // lsh; rounds also of reformer
  Index chunk = 0;                  // reformer
  Index features = 0;               // favor
  Index units = 0;                  // luong-concat and bahdanau: size of the hidden layer
  Index radius = 0;                 // luong-local-m and luong-local-p
  // Rules with a state, retention to kda: see StateAttentionOptions; empty words: those of the published layer.
  Index value_heads = 0, short_convolution = 0, gate_rank = 0, householders = 0;
  std::string output_norm = {}, output_gate = {};  // none or rms; none, silu or sigmoid
  double max_rate = 0, output_norm_eps = 0;
  Index layers = 0;                 // of the model, for the decays of lightning; 0: those of the first layer in each
  std::uint64_t seed = 1;           // favor: of the features; lsh and reformer: of the rotations
};

// An option of some mechanisms, as used by flags, checkpoints and docs/attention.md.
struct MechanismOption {
  std::string name = {};                     // "window", for the flag --window
  std::string text = {};                     // description, with the default
  std::vector<std::string> mechanisms = {};  // mechanisms with this option
  // Where the value is stored. Numbers are 1 or more, or above 0; or 0 for the default.
  std::variant<Index MechanismOptions::*, double MechanismOptions::*, std::string MechanismOptions::*> member = {};
  std::vector<std::string> words = {};  // allowed values of a text option; empty: whole numbers, "0,7"

  bool of(std::string_view mechanism) const;  // whether the mechanism has the option
};
const std::vector<MechanismOption>& mechanism_options();  // all options
// Calls f(option, value) for each option; the value is an Index, a double or a std::string.
template <class Options, class F>
void for_each_option(Options& options, F&& f) {
  for (const MechanismOption& o : mechanism_options())
    std::visit([&](auto member) { f(o, options.*member); }, o.member);
}

// The numbers of a text option, as "0,7". Throws Error that begins with `what` for other texts.
std::vector<Index> numbers_of(std::string_view what, std::string_view text);

// The options with the mechanism's defaults in place of 0, for checkpoints, which must not depend on defaults. Throws
// Error for negative options, and for strided and fixed without a stride or context.
MechanismOptions settled_options(std::string_view name, MechanismOptions options);

// Options for files that were written before mechanism options were stored: a window of 1/8 and rows of 1/4 of the
// context.
MechanismOptions older_options(std::string_view name, Index context);

// A factory for the mechanism of this name, one of mechanism_names(options.causal). Throws Error for another name, for
// a missing option that the mechanism needs, and for an option out of range.
MechanismFactory mechanism_by_name(std::string_view name, const MechanismOptions& options = {});
// Names of mechanisms that can be causal; or, for encoders, that can attend to all positions.
const std::vector<std::string>& mechanism_names(bool causal = true);
const std::vector<std::string>& all_mechanism_names();  // both
// Names of mechanisms that can attend to another sequence, as in a decoder.
const std::vector<std::string>& memory_mechanism_names();

// The names of an option's values in flags and files.
template <class T>
using Words = std::map<std::string, T>;
const Words<FeedForwardKind>& feed_forward_kinds();
const Words<NormKind>& norm_kinds();
const Words<PositionKind>& position_kinds();
const Words<RopeScalingKind>& rope_scaling_kinds();

// The name of a field, and its description: programs have a flag for each field that has one.
struct FieldName {
  FieldName(const char* n, std::string t = {}) : name(n), text(std::move(t)) {}  // implicit: f("layers", layers)
  FieldName(std::string n) : name(std::move(n)) {}                               // a field without a description
  std::string name, text;                                                        // the key in JSON; the description
};

// A field of options, as fields() declares it, for flags and tables. It refers to the options.
struct OptionField {
  enum Type { whole, share, positive, boolean, word };  // share: 0 <= x < 1; positive: x > 0, finite
  struct Word {                                         // a value of an enum, by its name
    std::function<std::string()> get;                   // empty for a value without a name
    std::function<void(const std::string&)> set;        // throws std::out_of_range for another word
  };

  std::string name = {}, text = {};                                     // as in FieldName
  Type type = word;                                                     // the kind of value
  std::variant<Index*, double*, bool*, std::string*, Word> value = {};  // refers to the member of the options
  Index min = 0;                        // of a whole number
  std::vector<std::string> words = {};  // the names of an enum's values
  bool omitted = false;                 // an optional field with its default, which JSON omits
};

// The argument of fields() of options structs: writes each field to JSON, or reads it, or lists it. Reading throws
// Error for a field that is missing, of another type or out of range: «lm.h5: the configuration has 0 for heads; it
// must be a whole number ...». Other fields of the JSON are ignored.
class OptionFields {
 public:
  enum Mode { write, read, list };  // what a call does with a field

  explicit OptionFields(Mode mode = write);                          // for writing or listing
  OptionFields(const std::string& json, const std::string& source);  // for reading; Error unless a JSON object
  ~OptionFields();

  void operator()(const FieldName& name, Index& value, Index min = 0);  // from `min` to 2^24
  void operator()(const FieldName& name, double& value, OptionField::Type type = OptionField::share);  // or positive
  void operator()(const FieldName& name, bool& value);                                                 // true or false
  void operator()(const FieldName& name, std::string& word);                                           // any string
  // A value of an enum, by its name in `words`.
  template <class T>
  void operator()(const FieldName& name, T& value, const Words<T>& words) {
    const auto named = [&value, words] {
      for (const auto& [word, v] : words)
        if (v == value) return word;
      return std::string();
    };
    std::vector<std::string> all;
    for (const auto& [word, v] : words) all.push_back(word);
    one_of(name, {named, [&value, words](const std::string& word) { value = words.at(word); }}, all);
  }
  // A field that files may lack. It is written unless it is 0, false or empty.
  template <class T, class... Range>
  void optional(const FieldName& name, T& value, const Range&... range) {
    if (lists() || has(name.name, value != T())) (*this)(name, value, range...);
    if (lists()) mark_omitted(value == T());
  }

  bool reads() const { return mode() == read; }  // whether the fields are set from JSON
  bool lists() const { return mode() == list; }  // whether the fields are only listed
  Mode mode() const;                             // as constructed
  // For an optional field. Reading: whether the file has the field. Writing: returns `if_writing`.
  bool has(const std::string& name, bool if_writing) const;
  // For conditions on several fields. When reading, throws Error unless `right`; `must_be` describes the allowed
  // values.
  void ensure(bool right, const std::string& name, const std::string& must_be) const;
  // Writing: fields with these names are first, in this order, if they are written.
  void order(const std::vector<std::string>& names);
  std::string json() const;                        // the fields written so far
  const std::vector<OptionField>& listed() const;  // the fields listed so far

 private:
  struct Json;
  std::unique_ptr<Json> json_;

  void one_of(const FieldName& name, const OptionField::Word& word, const std::vector<std::string>& words);
  void mark_omitted(bool omitted);  // the last field listed
};

// Options structs with a function fields().
template <class O>
concept HasFields = requires(O& options, OptionFields& f) {
  options.fields(f);
};

// The fields of the options as a JSON object.
template <HasFields O>
std::string to_json(O options) {
  OptionFields f;
  options.fields(f);
  return f.json();
}
// Throws Error as OptionFields. `source` is the file that the text is from, for messages.
template <HasFields O>
O from_json(const std::string& json, const std::string& source = "options") {
  OptionFields f(json, source);
  O options;
  options.fields(f);
  return options;
}

// The fields of the options, which replaces unset values by their defaults.
template <HasFields O>
std::vector<OptionField> list_fields(O& options) {
  OptionFields f(OptionFields::list);
  options.fields(f);
  return f.listed();
}

// Visits the options that this mechanism has; the names of the fields begin with `prefix`.
void mechanism_fields(OptionFields& f, const std::string& mechanism, MechanismOptions& options,
                      const std::string& prefix = {});

// A GPT, or a BERT if options.causal is false, and the mechanism of its blocks.
struct GPTConfig {
  GPTOptions options = {};            // causal = false: a BERT
  std::string attention = "softmax";  // one of mechanism_names(options.causal)
  MechanismOptions mechanism = {};    // causal, heads, head_size, layers and context: from `options`

  // For the constructor of GPT or BERT. Throws Error as mechanism_by_name().
  MechanismFactory factory() const;
  void fields(OptionFields& f);
};

}  // namespace heed

// A whole model as one description, and as JSON: what a checkpoint says of the model that it holds; and mechanisms by
// their names, for command lines and checkpoints.
//
// Example:
//
//   Rng rng(1);
//   const GPTConfig config{.options = {.vocabulary = 65}, .attention = "window", .mechanism = {.window = 16}};
//   GPT model(config.options, rng, config.factory());
//   const std::string text = to_json(config);               // {"model":"gpt","vocabulary":65, ... ,"window":16}
//   const auto same = from_json<GPTConfig>(text, "lm.h5");  // an Error names lm.h5
//
//   struct MyOptions {  // options of your own become JSON and come back, with the same errors
//     Index layers = 2;
//     double dropout = 0;
//     void fields(OptionFields& f) { f("layers", layers, 1), f("dropout", dropout); }
//   };
//   std::cout << to_json(MyOptions());
#pragma once
#include <heed/layers/gpt.hpp>
#include <heed/layers/transformer.hpp>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace heed {

// What mechanisms have beside their name; each takes what is its own, mechanism_options(). 0: the default said there.
// None but the stride, and the rows of a short context, follows the context, so that a mechanism whose work grows with
// the length does so in models of any context.
struct MechanismOptions {
  bool causal = true;               // how they will be asked to attend: `efficient` has a form for each;
  bool memory = false;              // and whether to another sequence, as a decoder does (then causal is not read)
  std::string feature_map = "elu";  // linear
  Index heads = 0, head_size = 0;   // of the layer: for mechanisms with parameters, favor and lsh
  Index context = 0;                // the most positions: luong-location, linformer, strided and fixed
  Index window = 0;                 // window, and lsh in each round
  Index stride = 0;                 // strided, and the blocks of fixed
  Index top_k = 0;                  // top-k
  Index rows = 0;                   // linformer, of projected keys
  Index rounds = 0, buckets = 0;    // lsh
  Index features = 0;               // favor
  Index units = 0;                  // luong-concat and bahdanau: the size of what they add
  Index radius = 0;                 // luong-local-m and -p
  std::uint64_t seed = 1;           // of favor's features and lsh's rotations
};

// An option that some mechanisms have beside their name: what flags, checkpoints and docs/attention.md know of it.
struct MechanismOption {
  std::string name = {};                     // "window", of the flag --window
  std::string text = {};                     // what it is, with its default
  std::vector<std::string> mechanisms = {};  // that have it
  std::variant<Index MechanismOptions::*, std::string MechanismOptions::*> member = {};
  std::vector<std::string> words = {};  // what a word may be

  bool of(std::string_view mechanism) const;
};
const std::vector<MechanismOption>& mechanism_options();
// f(option, value) for each of them, whose value is an Index or a std::string.
template <class Options, class F>
void for_each_option(Options& options, F&& f) {
  for (const MechanismOption& o : mechanism_options())
    std::visit([&](auto member) { f(o, options.*member); }, o.member);
}

// What the mechanism of this name has for options that are 0: for a checkpoint, which must not hang on a default. Error
// as of mechanism_by_name().
MechanismOptions settled_options(std::string_view name, MechanismOptions options);

// What a mechanism has in files from before they kept its options: a window of an eighth and rows of a quarter of the
// context.
MechanismOptions older_options(std::string_view name, Index context);

// One of mechanism_names(options.causal). Throws Error for another name, and for an option that the mechanism needs and
// does not have, or cannot take.
MechanismFactory mechanism_by_name(std::string_view name, const MechanismOptions& options = {});
// Those that can be causal; or those that can attend to all positions, for encoders.
const std::vector<std::string>& mechanism_names(bool causal = true);
const std::vector<std::string>& all_mechanism_names();  // of both
const std::vector<std::string>&
memory_mechanism_names();  // those that can attend to another sequence, as a decoder does

// The words of flags and files for the values of an option.
template <class T>
using Words = std::map<std::string, T>;
const Words<FeedForwardKind>& feed_forward_kinds();
const Words<NormKind>& norm_kinds();
const Words<PositionKind>& position_kinds();

// What fields() of options is called with: writes each field, or reads it. Reading throws Error for a field that is not
// there, of another type or out of range: «lm.h5: the configuration has 0 for heads; it must be a whole number ...».
// What else the JSON holds is left alone.
class OptionFields {
 public:
  OptionFields();                                                    // writes
  OptionFields(const std::string& json, const std::string& source);  // reads; Error unless it is a JSON object
  ~OptionFields();

  void operator()(const std::string& name, Index& value, Index least = 0);  // up to 2^24
  void operator()(const std::string& name, double& share);                  // 0 <= share < 1
  void operator()(const std::string& name, bool& value);
  void operator()(const std::string& name, std::string& word);
  template <class T>
  void operator()(const std::string& name, T& value, const Words<T>& words) {
    std::string word, all;
    for (const auto& [w, v] : words) {
      if (v == value) word = w;
      all += (all.empty() ? "" : w == words.rbegin()->first ? " or " : ", ") + w;
    }
    (*this)(name, word);
    ensure(words.count(word) == 1, name, all);
    if (reads()) value = words.at(word);
  }

  bool reads() const;
  // Of a field that may be left out: whether the file has it; in writing, whether it is to be `kept`.
  bool has(const std::string& name, bool kept) const;
  // What concerns several fields: in reading, an Error unless it is `right`, which says what the field must be.
  void ensure(bool right, const std::string& name, const std::string& must_be) const;
  std::string json() const;

 private:
  struct Json;
  std::unique_ptr<Json> json_;
};

template <class O>
concept HasFields = requires(O& options, OptionFields& f) {
  options.fields(f);
};

template <HasFields O>
std::string to_json(O options) {
  OptionFields f;
  options.fields(f);
  return f.json();
}
// `source` is the file that the text is from, for messages.
template <HasFields O>
O from_json(const std::string& json, const std::string& source = "options") {
  OptionFields f(json, source);
  O options;
  options.fields(f);
  return options;
}

// The fields of what this mechanism has of the options; names begin with `prefix`.
void mechanism_fields(OptionFields& f, const std::string& mechanism, MechanismOptions& options,
                      const std::string& prefix = {});

// A GPT, or a BERT where options.causal is false, and the mechanism of its blocks.
struct GPTConfig {
  GPTOptions options = {};
  std::string attention = "softmax";  // one of mechanism_names(options.causal)
  MechanismOptions mechanism = {};    // whose causal, heads, head_size and context follow the options

  // For the constructor of GPT or BERT. Error as of mechanism_by_name().
  MechanismFactory factory() const;
  void fields(OptionFields& f);
};

}  // namespace heed

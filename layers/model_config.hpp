// A whole model as one description, and as JSON: what a checkpoint says of the model that it holds.
//
//   const GPTConfig config{.options = {.vocabulary = 65}, .attention = "window", .mechanism = {.window = 16}};
//   GPT model(config.options, rng, config.factory());
//   const std::string text = to_json(config);               // {"model":"gpt","vocabulary":65, ... ,"window":16}
//   const auto same = from_json<GPTConfig>(text, "lm.h5");  // an Error names lm.h5
//
// Options of your own become JSON and come back, with the same errors, where they name their fields once:
//
//   struct MyOptions {
//     Index layers = 2;
//     double dropout = 0;
//     NormKind norm = NormKind::layer;
//     void fields(OptionFields& f) { f("layers", layers, 1), f("dropout", dropout), f("norm", norm, norm_kinds()); }
//   };
#pragma once
#include <heed/layers/attention/by_name.hpp>
#include <heed/layers/gpt.hpp>
#include <map>
#include <memory>
#include <string>

namespace heed {

// The words of flags and files for the values of an option.
template <class T> using Words = std::map<std::string, T>;
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
  template <class T> void operator()(const std::string& name, T& value, const Words<T>& words) {
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

template <class O> concept HasFields = requires(O& options, OptionFields& f) { options.fields(f); };

template <HasFields O> std::string to_json(O options) {
  OptionFields f;
  options.fields(f);
  return f.json();
}
// `source` is the file that the text is from, for messages.
template <HasFields O> O from_json(const std::string& json, const std::string& source = "options") {
  OptionFields f(json, source);
  O options;
  options.fields(f);
  return options;
}

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

// Mechanisms by their names, for command lines and checkpoints.
#pragma once
#include <heed/layers/transformer.hpp>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace heed {

// What mechanisms have beside their name; each takes what is its own, mechanism_options(). 0: the default said there.
// None but the stride, and the rows of a short context, follows the context, so that a mechanism whose work grows with
// the length does so in models of any context.
struct MechanismOptions {
  bool causal = true;               // how they will be asked to attend: `efficient` has a form for each
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
  std::uint64_t seed = 1;           // of favor's features and lsh's rotations
};

// An option that some mechanisms have beside their name: what flags, checkpoints and docs/attention.md know of it.
struct MechanismOption {
  std::string name;                     // "window", of the flag --window
  std::string text;                     // what it is, with its default
  std::vector<std::string> mechanisms;  // that have it
  std::variant<Index MechanismOptions::*, std::string MechanismOptions::*> member;
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
const std::vector<std::string>& all_mechanism_names();

}  // namespace heed

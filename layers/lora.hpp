// LoRA (Hu et al., "LoRA: Low-rank adaptation of large language models", 2021): trains adapters of low rank beside the
// frozen weights of a model's linear layers.
//
// An adapter is two small matrices A [rank, in] and B [out, rank]. It changes a linear map y = x W^T + b to
// y = x W^T + b + scale (dropout(x) A^T) B^T. At the beginning B is 0, so the model is unchanged. Backward ends at the
// lowest adapter, and gradients of frozen weights are not computed. Files are those of PEFT: io/peft.hpp.
//
// Example:
//
//   Rng rng(1);
//   GPT model({.vocabulary = 65, .context = 64, .blocks = {.layers = 2, .attention = {.width = 32, .heads = 2}}}, rng);
//   add_lora(model, {.rank = 4, .alpha = 8, .targets = "q,v"}, rng);
//   std::cout << trainable_parameters(model).front().name << '\n';  // blocks.0.attention.qkv.lora.a
//   merge_lora(model);  // an ordinary model again
#pragma once
#include <heed/core/members.hpp>
#include <heed/core/random.hpp>
#include <heed/layers/linear.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace heed {

class OptionFields;

// Options of add_lora().
//
// `targets`: "all", which is all linear maps in blocks (in a model without blocks, all), or names of linear maps,
// separated by commas. A name is a path in the model, or its end after a dot: "proj" is the proj of each block, and
// "mlp.down" or "blocks.0.mlp.down" are narrower. The maps in a stacked matrix have their own names: q, k and v in qkv,
// and gate and up in the up of swiglu (LinearMap). Their layer has a name as well: "qkv" gives one adapter to the whole
// matrix. PEFT's names of layers have the same effect: q_proj, o_proj, gate_proj, c_attn, query, all-linear, ...
struct LoraOptions {
  Index rank = 8;               // rows of A and columns of B; at least 1
  double alpha = 8;             // the scale is alpha / rank; above 0
  bool rslora = false;          // the scale is alpha / sqrt(rank) (rsLoRA, Kalajdzievski 2023)
  double dropout = 0;           // of an adapter's input, during training; at least 0 and below 1
  std::string targets = "all";  // the linear maps that get adapters
  // "all" gives one adapter to a stacked matrix, as PEFT does to GPT-2's c_attn, instead of one to each map in it.
  bool whole = false;

  void fields(OptionFields& f);  // JSON: layers/model_config.hpp
};

// A linear map of a model that can get an adapter: the matrix of a Linear, or one of the maps that are stacked in it.
struct LinearMap {
  std::string name = {};     // blocks.0.attention.q; for the whole matrix the path of the Linear
  std::string layer = {};    // the path of the Linear: blocks.0.attention.qkv
  int part = -1;             // number of the map in the matrix; -1: the whole matrix
  Linear* linear = {};       // never null in the results of linear_maps()
  ColumnRange columns = {};  // of the result
  int adapter = -1;          // number of its adapter in Linear::lora; -1: none
};

// All linear maps of a model, in the order of its members: each matrix, and after a stacked matrix the maps in it. A
// map has the name that heed's layers give it (q, k and v in qkv, k and v in kv, gate and up in the up of swiglu), else
// the path of the Linear and a number.
template <class M>
std::vector<LinearMap> linear_maps(M& model);

namespace detail {
std::vector<LinearMap> linear_maps(const std::vector<NamedLayer<Linear>>& layers);
// The maps that options.targets selects. Throws Error as add_lora().
std::vector<LinearMap> lora_targets(const std::vector<LinearMap>& maps, const LoraOptions& options);
// Makes adapters for these maps of one model, with rows of A and columns of B as the options say, and without values.
void make_adapters(const std::vector<LinearMap>& maps, const LoraOptions& options);
void init_adapters(const std::vector<NamedLayer<Linear>>& layers, Rng& rng);
void merge_adapters(const char* op, const std::vector<NamedLayer<Linear>>& layers, bool add);
}  // namespace detail

// Declared above.
template <class M>
std::vector<LinearMap> linear_maps(M& model) {
  return detail::linear_maps(named_layers<Linear>(model));
}

// Freezes all parameters of a model and adds adapters, whose parameters are named like blocks.0.attention.qkv.lora.a.
// The initial values are PEFT's: A is uniform in +-1/sqrt(in), drawn layer by layer, and B is 0. Make the optimizer
// after this call, from trainable_parameters(model). Adapters are float64 if the weight is, else float32.
//
// Throws Error for options out of range, for a target that matches no linear map (with the names that exist), for two
// targets that select a matrix and a map in it, and if the model has adapters.
template <class M>
void add_lora(M& model, const LoraOptions& options, Rng& rng) {
  const std::vector<LinearMap> targets = detail::lora_targets(linear_maps(model), options);
  freeze(model);
  detail::make_adapters(targets, options);
  detail::init_adapters(named_layers<Linear>(model), rng);
}

// Adds each adapter's scale * B A to its weight, and removes the adapters. Results are the same up to rounding. The
// weights stay frozen until freeze(model, false). Sums are rounded once to the dtype of the weight. Throws Error if the
// model has no adapters, or an adapted weight is quantized.
template <class M>
void merge_lora(M& model) {
  detail::merge_adapters("merge_lora", named_layers<Linear>(model), true);
}

// Removes the adapters, so that the model is what it was before add_lora(), but frozen. Throws Error if the model has
// no adapters.
template <class M>
void remove_lora(M& model) {
  detail::merge_adapters("remove_lora", named_layers<Linear>(model), false);
}

}  // namespace heed

// Functions for whole models: copies, conversion of dtypes, and summaries.
//
// Example:
//
//   Rng rng(1);
//   GPT model({.vocabulary = 65, .context = 64, .blocks = {.layers = 2, .attention = {.width = 32, .heads = 2}}}, rng);
//   GPT exact = clone(model);
//   to(exact, DType::float64);
//   std::cout << summary(model, model.predict_activations(12, 64));
#pragma once
#include <functional>
#include <heed/core/members.hpp>
#include <heed/core/random.hpp>
#include <heed/layers/linear.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace heed {

class OptionFields;

// Bytes that a training step keeps from its forward pass until backward, without parameters.
struct ActivationBytes {
  std::size_t total = 0;                                          // of all modules
  std::vector<std::pair<std::string, std::size_t>> modules = {};  // by module path: see Tape::saved_by_module()
};

// Predicts the kept bytes for a batch of `rows`. forward(n) computes the loss of a training step for any batch of n
// rows; it is run with one row and with two. The prediction is exact if each additional row adds the same number of
// bytes, as in all layers of heed. Uses the current MatmulPrecision and frozen parameters, and restores default_rng().
// Throws Error for rows below 1, and if forward(2) has other modules than forward(1).
ActivationBytes predict_activations(const std::function<Tensor(Index)>& forward, Index rows);

// The same for model(x), with x of shape `input`, whose first axis is the batch.
template <class M>
ActivationBytes predict_activations(M& model, const Shape& input, DType dtype = DType::float32) {
  named_parameters(model);  // sets the paths of the parameters
  return predict_activations([&](Index n) { return model(Tensor::zeros(input.with(0, n), dtype)); }, input[0]);
}

namespace detail {
// Gives each parameter of `to` the dtype of the one in `from` with the same place and name, unless it is tied.
void take_dtypes(const std::vector<NamedParameter>& from, const std::vector<NamedParameter>& to);
std::optional<DType> common_dtype(const std::vector<NamedParameter>& parameters);  // none: no parameters, or several
void copy_parameters(const std::vector<NamedParameter>& from, const std::vector<NamedParameter>& to);
void convert(const Members& members, DType dtype);
// The dtype of a parameter in a model that to() converts to `type`.
DType converted_type(const NamedParameter& p, DType type);
void copy_buffers(const std::vector<NamedBuffer>& from, const std::vector<NamedBuffer>& to);
std::string summary_text(const std::vector<NamedParameter>& parameters, const ActivationBytes& activations);
std::string summary_of_options(const std::function<void(OptionFields&)>& fields);
}  // namespace detail

// Copies all values between models. Throws Error unless parameters have the same names, shapes and dtypes.
template <class M>
void copy_values(M& from, M& to) {
  detail::copy_parameters(named_parameters(from), named_parameters(to));
  detail::copy_buffers(named_buffers(from), named_buffers(to));
}

// Converts all parameters and floating buffers to float32 or float64. Tied parameters stay tied; gradients are dropped.
//
// bfloat16 is for a GPT that generates and is not trained further. Only the weights of linear layers and the tables of
// embeddings are converted. Vectors, members of mechanisms, and results are float32. Factors of bfloat16 weights are
// rounded to bfloat16; sums are float32. Queries, keys and values are bfloat16 if the mechanism takes bfloat16
// (AttentionCapabilities), which halves the keys and values in a decode state.
//
// q8_0 is for generation and for a base that is frozen under adapters (add_lora()). The same weights are converted if
// their rows are multiples of 32 numbers; they are rounded, become frozen, and take 27% of the memory of float32.
// Everything else is float32.
template <class M>
void to(M& model, DType dtype) {
  detail::convert(detail::members_of(model), dtype);
}

// Returns a copy of the model with its own values, in the same dtype. `make` builds a model of the same structure and
// chooses everything that is not a parameter, such as the mechanism. (Parameters have no copy constructor, so that no
// copy is made by accident.)
template <class M, class Make>
requires std::invocable<Make&> M clone(M& model, Make make) {
  M copy = make();
  if (const auto dtype = detail::common_dtype(named_parameters(model));
      dtype && dtype != detail::common_dtype(named_parameters(copy)))
    to(copy, *dtype);
  detail::take_dtypes(named_parameters(model), named_parameters(copy));
  copy_values(model, copy);
  return copy;
}

// The same for models that are built from options(), a generator and a mechanism_factory(), such as GPT.
template <class M>
requires requires(M& m, Rng& rng) { M(m.options(), rng, m.mechanism_factory()); }
M clone(M& model) {
  return clone(model, [&] {
    Rng rng;
    return skip_init<M>(model.options(), rng, model.mechanism_factory());
  });
}

// A table of all parameters: names, with the dtype if it is quantized, shapes, numbers of elements, and the total; and
// a line with the options of the model, if they have fields() (layers/model_config.hpp). With a prediction, also the
// bytes that a training step keeps for backward, per module, in the row of the module's first parameter:
//   std::cout << summary(gpt, gpt.predict_activations(12, 64)) << summary(mlp, predict_activations(mlp, {32, 784}));
template <class M>
std::string summary(M& model, const ActivationBytes& activations = {}) {
  std::string text = detail::summary_text(named_parameters(model), activations);
  if constexpr (requires(OptionFields & f) { std::remove_cvref_t<decltype(model.options())>().fields(f); })
    text += detail::summary_of_options([options = model.options()](OptionFields& f) mutable { options.fields(f); });
  return text;
}

}  // namespace heed

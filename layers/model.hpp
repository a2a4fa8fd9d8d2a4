// What one does with whole models: copy, convert, describe.
//
// Example:
//
//   Rng rng(1);
//   GPT model({.vocabulary = 65, .context = 64, .layers = 2, .heads = 2, .width = 32}, rng);
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

// What a training step keeps of its forward pass until backward, in bytes; parameters are not counted.
struct ActivationBytes {
  std::size_t total = 0;
  std::vector<std::pair<std::string, std::size_t>> modules = {};  // by path: see Tape::saved_by_module()
};

// Predicts them for a batch of `rows`. forward(n) computes, of any batch of n rows, what a training step does up to its
// loss; it is run with one row and with two. Exact where every further row adds as much, as for all layers here.
// Precision (MatmulPrecision) and frozen parameters are as they are now; the random numbers are left as they were.
ActivationBytes predict_activations(const std::function<Tensor(Index)>& forward, Index rows);

// The same for model(x), x of this shape, whose first axis is the batch.
template <class M>
ActivationBytes predict_activations(M& model, const Shape& input, DType dtype = DType::float32) {
  named_parameters(model);  // gives the parameters their paths
  return predict_activations([&](Index n) { return model(Tensor::zeros(input.with(0, n), dtype)); }, input[0]);
}

namespace detail {
std::optional<DType> common_dtype(const std::vector<NamedParameter>& parameters);  // none: no parameters, or several
void copy_parameters(const std::vector<NamedParameter>& from, const std::vector<NamedParameter>& to);
void convert(const std::vector<Member>& members, DType dtype);
void copy_buffers(const std::vector<NamedBuffer>& from, const std::vector<NamedBuffer>& to);
std::string summary_text(const std::vector<NamedParameter>& parameters, const ActivationBytes& activations);
}  // namespace detail

// Copies all values from one model to another of the same names, shapes and dtypes; Error otherwise.
template <class M>
void copy_values(M& from, M& to) {
  detail::copy_parameters(named_parameters(from), named_parameters(to));
  detail::copy_buffers(named_buffers(from), named_buffers(to));
}

// Converts all parameters (and floating buffers) to float32 or float64; tied ones stay tied. Gradients are dropped. To
// bfloat16, for a GPT that generates and is not trained further: the weights of linear layers and the tables of
// embeddings, as a token reads all of them. Vectors, what mechanisms hold, and results are float32; what a weight of
// bfloat16 multiplies is rounded to it first, and sums are float32. Queries, keys and values are bfloat16 where the
// mechanism takes them so (AttentionCapabilities), which halves the keys and values that a decode state keeps.
template <class M>
void to(M& model, DType dtype) {
  detail::convert(detail::members_of(model), dtype);
}

// A model of its own with the same values, of the same dtype. `make` builds one of the same structure: parameters
// cannot be copied by accident, and what is no parameter, such as the way to attend, is `make`'s to choose.
template <class M, class Make>
requires std::invocable<Make&> M clone(M& model, Make make) {
  M copy = make();
  if (const auto dtype = detail::common_dtype(named_parameters(model));
      dtype && dtype != detail::common_dtype(named_parameters(copy)))
    to(copy, *dtype);
  copy_values(model, copy);
  return copy;
}

// For models that are built from options(), a generator and a factory of attention mechanisms, as GPT is.
template <class M>
requires requires(M& m, Rng& rng) { M(m.options(), rng, m.mechanism_factory()); }
M clone(M& model) {
  return clone(model, [&] {
    Rng rng;
    return skip_init<M>(model.options(), rng, model.mechanism_factory());
  });
}

// A table of all parameters: name, shape, number, and the total. With a prediction also the bytes that a training step
// keeps for backward, each module's beside its first parameter:
//   std::cout << summary(gpt, gpt.predict_activations(12, 64)) << summary(mlp, predict_activations(mlp, {32, 784}));
template <class M>
std::string summary(M& model, const ActivationBytes& activations = {}) {
  return detail::summary_text(named_parameters(model), activations);
}

}  // namespace heed

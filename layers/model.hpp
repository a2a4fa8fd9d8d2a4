// What one does with whole models: copy, convert, describe.
#pragma once
#include <heed/core/members.hpp>
#include <heed/core/random.hpp>
#include <iosfwd>
#include <map>
#include <string>

namespace heed {

namespace detail {
void copy_parameters(const std::vector<NamedParameter>& from, const std::vector<NamedParameter>& to);
void copy_buffers(const std::vector<NamedBuffer>& from, const std::vector<NamedBuffer>& to);
std::string summary_text(const std::vector<NamedParameter>& parameters, std::size_t activation_bytes);
}  // namespace detail

// Copies all values from one model to another of the same names and shapes; Error otherwise.
template <class M>
void copy_values(M& from, M& to) {
  detail::copy_parameters(named_parameters(from), named_parameters(to));
  detail::copy_buffers(named_buffers(from), named_buffers(to));
}

// A model of its own with the same values. `make` builds one of the same structure: parameters cannot be copied by
// accident.
template <class M, class Make>
requires std::invocable<Make&> M clone(M& model, Make make) {
  M copy = make();
  copy_values(model, copy);
  return copy;
}

// For models that are built from options() and a generator, as GPT is.
template <class M>
requires requires(M& m, Rng& rng) { M(m.options(), rng); }
M clone(M& model) {
  return clone(model, [&] {
    Rng rng;
    return M(model.options(), rng);
  });
}

// Converts all parameters (and floating buffers) to float32 or float64; tied ones stay tied. Gradients are dropped.
template <class M>
void to(M& model, DType dtype) {
  std::map<const detail::Storage*, Parameter*> done;
  std::vector<Parameter> kept;  // the old ones, so that no storage is reused while its address is a key
  detail::walk(
      model,
      [&](const std::string&, Parameter& p) {
        const detail::Storage* storage = p.storage();
        if (const auto found = done.find(storage); found != done.end()) {
          p = Parameter(Tensor::empty(p.shape(), dtype));
          return tie(*found->second, p);
        }
        Parameter converted(p.detach().to(dtype).clone());
        converted.set_path(p.path());
        converted.requires_grad_(p.requires_grad());
        kept.push_back(std::move(p));
        p = std::move(converted);
        done[storage] = &p;
        done[p.storage()] = &p;
      },
      [&](const std::string&, Tensor& b) {
        if (b.defined() && is_floating(b.dtype())) b = b.to(dtype).detach();
      });
}

// A table of all parameters: name, shape, number; the total, and the bytes that a training step will keep for backward
// if the model predicts them (0: not shown).
template <class M>
std::string summary(M& model, std::size_t activation_bytes = 0) {
  return detail::summary_text(named_parameters(model), activation_bytes);
}

}  // namespace heed

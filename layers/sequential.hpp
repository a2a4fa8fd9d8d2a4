// Layers applied one after the other.
//
// Example:
//
//   Rng rng(1);
//   Sequential model(Linear(2, 16, rng), gelu, Linear(16, 2, rng));
//   const Tensor logits = model(rng.normal({8, 2}));
#pragma once
#include <concepts>
#include <heed/core/members.hpp>
#include <string>
#include <tuple>
#include <type_traits>

namespace heed {

namespace detail {

// Calls gelu(x, Gelu approximate = Gelu::none), whose pointer knows no defaults, with that default. Those of numbers
// are not known: elu, whose alpha is 1, is no part.
template <class... Options>
requires((std::is_enum_v<Options> || std::is_aggregate_v<Options>)&&...) Tensor
    call_part(Tensor (*f)(In, Options...), In x) {
  return f(x, Options{}...);
}

template <class F>
concept OneTensorFunction = requires(const F& f, In x) {
  { f(x) } -> std::convertible_to<Tensor>;
};
template <class F>
concept SequentialPart = OneTensorFunction<F> || requires(const F& f, In x) {
  call_part(f, x);
};
// A function, so that the compiler names the part as its F.
template <class F>
constexpr bool checked_part() {
  static_assert(SequentialPart<F>,
                "Sequential: this part cannot be called with one Tensor to give one; it must be a layer with `Tensor "
                "operator()(In x) const`, mind the const, or a function; one that needs numbers goes into a lambda");
  return true;
}

}  // namespace detail

// Sequential model(Linear(2, 16, rng), gelu, Linear(16, 2, rng)): each is a layer or a function of a Tensor. One that
// needs numbers, or has several forms, goes into a lambda: [](In x) { return elu(x, 0.5); }. The functions that <cmath>
// has too need their full name: heed::tanh. Members are named 0, 1, ...; functions have none.
template <class... Layers>
struct Sequential {
  static_assert((detail::checked_part<Layers>() && ...));
  std::tuple<Layers...> layers;

  explicit Sequential(Layers... parts) : layers(std::move(parts)...) {}

  Tensor operator()(In x) const {
    return std::apply(
        [&](const auto&... layer) {
          Tensor y = x;
          ((y = call(layer, In(y, x.where()))), ...);
          return y;
        },
        layers);
  }

  template <std::size_t I>
  auto& get() {
    return std::get<I>(layers);
  }

  void members(auto&& visit) { visit_all(visit, std::index_sequence_for<Layers...>()); }

 private:
  template <class L>
  static Tensor call(const L& layer, In x) {
    if constexpr (detail::OneTensorFunction<L>)
      return layer(x);
    else
      return detail::call_part(layer, x);
  }
  template <std::size_t... I>
  void visit_all(auto&& visit, std::index_sequence<I...>) {
    (visit_one(visit, std::to_string(I), std::get<I>(layers)), ...);
  }
  template <class L>
  static void visit_one(auto&& visit, const std::string& name, L& layer) {
    if constexpr (detail::Layer<L>) visit(name.c_str(), layer);
  }
};

}  // namespace heed

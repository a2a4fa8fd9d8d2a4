// Layers applied one after another.
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

// Calls an op with the default values of its other parameters, which are enums or options structs: gelu(x, Gelu
// approximate = Gelu::none). A pointer to a function has no default arguments. Ops with parameters that are numbers,
// such as elu(x, alpha = 1), are not parts, because their defaults are unknown here.
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
// A function, so that the compiler's message shows the type of the part as F.
template <class F>
constexpr bool checked_part() {
  static_assert(SequentialPart<F>,
                "Sequential: this part cannot be called with one Tensor to return one; it must be a layer with `Tensor "
                "operator()(In x) const` (with const) or a function; use a lambda for a function with more arguments");
  return true;
}

}  // namespace detail

// Layers or functions of a Tensor, applied in order: Sequential model(Linear(2, 16, rng), gelu, Linear(16, 2, rng)).
// Use a lambda for a function that needs numbers or is overloaded: [](In x) { return elu(x, 0.5); }. Functions that
// <cmath> also declares need their full names: heed::tanh. Members are named 0, 1, ...; functions have no members.
template <class... Layers>
struct Sequential {
  static_assert((detail::checked_part<Layers>() && ...));
  std::tuple<Layers...> layers;  // in the order of application

  explicit Sequential(Layers... parts) : layers(std::move(parts)...) {}  // takes over the layers

  // Applies the layers in order.
  Tensor operator()(In x) const {
    return std::apply(
        [&](const auto&... layer) {
          Tensor y = x;
          ((y = call(layer, In(y, x.where()))), ...);
          return y;
        },
        layers);
  }

  // Layer number I, from 0.
  template <std::size_t I>
  auto& get() {
    return std::get<I>(layers);
  }

  void members(auto&& visit) {  // 0, 1, ...
    std::size_t i = 0;
    const auto visit_one = [&]<class L>(L& layer) {
      if constexpr (detail::Layer<L>) visit(std::to_string(i), layer);
      ++i;
    };
    std::apply([&](auto&... layer) { (visit_one(layer), ...); }, layers);
  }

 private:
  template <class L>
  static Tensor call(const L& layer, In x) {
    if constexpr (detail::OneTensorFunction<L>)
      return layer(x);
    else
      return detail::call_part(layer, x);
  }
};

}  // namespace heed

// Layers applied one after the other.
#pragma once
#include <heed/core/members.hpp>
#include <string>
#include <tuple>

namespace heed {

// Sequential model(Linear(2, 16, rng), relu_layer, Linear(16, 2, rng)): each is a layer or any function of a Tensor.
// Members are named 0, 1, ...; functions have none.
template <class... Layers>
struct Sequential {
  std::tuple<Layers...> layers;

  explicit Sequential(Layers... parts) : layers(std::move(parts)...) {}

  Tensor operator()(In x) const {
    return std::apply(
        [&](const auto&... layer) {
          Tensor y = x;
          ((y = layer(In(y, x.where()))), ...);
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

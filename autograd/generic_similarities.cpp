// The similarities of generic attention that have a name.
#include <cmath>
#include <heed/autograd/elementwise.hpp>
#include <heed/autograd/generic_attention.hpp>
#include <heed/core/names.hpp>

namespace heed {
namespace {

std::vector<Similarity> similarities() {
  const auto itself = [](const Tensor& s) { return s; };
  const auto one = [](const Tensor& s) { return Tensor::ones(s.shape(), s.dtype()); };
  const auto logistic = [](const Tensor& s) { return sigmoid(s); };
  return {{"embedded-gaussian", itself, one, true},
          {"dot-product", itself, one, false, SimilarityNorm::count},
          {"relu", [](const Tensor& s) { return relu(s); }, [](const Tensor& s) { return (s > 0).to(s.dtype()); }},
          {"square", [](const Tensor& s) { return square(s); }, [](const Tensor& s) { return s * 2; }},
          {"softplus", [](const Tensor& s) { return softplus(s); }, logistic},
          {"sigmoid", logistic, [](const Tensor& s) { return sigmoid(s) * sigmoid(-s); }},
          polynomial_similarity(2)};
}

}  // namespace

Similarity polynomial_similarity(Exactly<Index> degree, double offset) {
  const Index p = degree;
  require(p >= 2 && p % 2 == 0, "polynomial similarity: the degree is ", p, "; it must be even, and 2 or more");
  require(std::isfinite(offset), "polynomial similarity: the offset is ", offset, "; it must be a finite number");
  const auto power = [offset](Index n, const Tensor& s) {
    return n == 1 ? s + offset : pow(s + offset, static_cast<double>(n));
  };
  const auto value = [=](const Tensor& s) { return power(p, s); };
  const auto slope = [=](const Tensor& s) { return power(p - 1, s) * static_cast<double>(p); };
  return {.name = "polynomial", .f = value, .derivative = slope};
}

const std::vector<std::string>& similarity_names() {
  static const std::vector<std::string> names = detail::names_of(similarities(), &Similarity::name);
  return names;
}

Similarity similarity_by_name(std::string_view name) {
  return detail::row_named(name, "similarity: the name", similarities(), &Similarity::name);
}

}  // namespace heed

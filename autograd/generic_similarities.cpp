// The similarities of generic attention that have a name.
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
          {"sigmoid", logistic, [](const Tensor& s) { return sigmoid(s) * sigmoid(-s); }}};
}

}  // namespace

const std::vector<std::string>& similarity_names() {
  static const std::vector<std::string> names = detail::names_of(similarities(), &Similarity::name);
  return names;
}

Similarity similarity_by_name(std::string_view name) {
  return detail::row_named(name, "similarity: the name", similarities(), &Similarity::name);
}

}  // namespace heed

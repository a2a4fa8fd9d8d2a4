// group_norm() and batch_norm(): layer_norm() of rows that are groups or channels, and a factor and a term per channel.
#include <heed/autograd/detail/windows.hpp>
#include <heed/autograd/elementwise.hpp>
#include <heed/autograd/norms.hpp>
#include <numeric>
#include <vector>

namespace heed {
namespace {

void check_channel_vector(const char* op, const char* name, In x, const Tensor& v) {
  const Shape channels = {x.dim(1)};
  check(!v.defined() || (v.shape() == channels && v.dtype() == x.dtype()), x.where(), op, ": x is ", x.tensor(),
        " but ", name, " is ", v, "; it must be ", channels, " ", x.dtype());
}

void check_normed(const char* op, In x, In weight, In bias, double eps) {
  check(x->defined() && (x.dtype() == DType::float32 || x.dtype() == DType::float64), x.where(), op, ": x is ",
        x.tensor(), "; it must be float32 or float64");
  check(x.rank() >= 2, x.where(), op, ": x is ", x.tensor(), "; it must be [N, C, ...]");
  check(eps >= 0, x.where(), op, ": eps is ", eps, "; it must not be negative");
  check_channel_vector(op, "weight", x, weight);
  check_channel_vector(op, "bias", x, bias);
}

// x [N, C, ...] with the channels as the last axis, and the inverse.
Tensor channels_last(const Tensor& x) {
  std::vector<int> order(static_cast<std::size_t>(x.rank()));
  std::iota(order.begin() + 1, order.end() - 1, 2);
  order.back() = 1;
  return x.permute(order);
}
Tensor channels_second(const Tensor& x) {
  std::vector<int> order(static_cast<std::size_t>(x.rank()), x.rank() - 1);
  order[0] = 0;
  std::iota(order.begin() + 2, order.end(), 1);
  return x.permute(order);
}

// The shape in which a vector [C] broadcasts along axis 1 of a tensor of this rank: [C, 1, ...].
Shape along_axis_1(Index channels, int rank) {
  Shape shape = {channels};
  for (int a = 2; a < rank; ++a) shape.push_back(1);
  return shape;
}

// normal * weight + bias per channel, for `normal` of x's shape. The results of elementwise ops are contiguous, so the
// channels are the last axis of their operands if they are next to each other in x.
Tensor with_affine(In x, const Tensor& normal, In weight, In bias) {
  const bool last = x.rank() > 2 && detail::has_channels_last(x);
  Tensor y = last ? channels_last(normal) : normal;
  const Shape channels = last ? Shape{x.dim(1)} : along_axis_1(x.dim(1), x.rank());
  if (weight->defined()) y = In(y, x.where()) * In(weight->view(channels), weight.where());
  if (bias->defined()) y = In(y, x.where()) + In(bias->view(channels), bias.where());
  y = y.contiguous();
  return last ? channels_second(y) : y;
}

}  // namespace

Tensor group_norm(In x, Exactly<Index> groups, In weight, In bias, double eps) {
  check_normed("group_norm", x, weight, bias, eps);
  check(groups > 0 && x.dim(1) % groups == 0, x.where(), "group_norm: x is ", x.tensor(), " and groups is ",
        Index{groups}, "; groups must divide the channels, axis 1");
  if (x.numel() == 0) return with_affine(x, x, weight, bias);
  const Tensor rows = x->reshape({x.dim(0), groups, -1});
  const Tensor normal = layer_norm({rows, x.where()}, Tensor(), Tensor(), eps);
  return with_affine(x, normal.view(x.shape()), weight, bias);
}

Tensor batch_norm(In x, In weight, In bias, double eps) {
  check_normed("batch_norm", x, weight, bias, eps);
  if (x.numel() == 0) return with_affine(x, x, weight, bias);
  const Tensor by_channel = x->transpose(0, 1);  // [C, N, ...]
  const Tensor rows = by_channel.reshape({x.dim(1), -1});
  const Tensor normal = layer_norm({rows, x.where()}, Tensor(), Tensor(), eps);
  return with_affine(x, normal.view(by_channel.shape()).transpose(0, 1), weight, bias);
}

Tensor batch_norm(In x, In mean, In variance, In weight, In bias, double eps) {
  check_normed("batch_norm", x, weight, bias, eps);
  check(mean->defined() && variance->defined(), x.where(), "batch_norm: mean is ", mean.tensor(), " and variance is ",
        variance.tensor(), "; both must be given");
  check_channel_vector("batch_norm", "mean", x, mean);
  check_channel_vector("batch_norm", "variance", x, variance);
  const Tensor deviation = rsqrt(In(variance, x.where()) + eps);
  const Tensor factor = weight->defined() ? In(deviation, x.where()) * weight : deviation;
  const Tensor shift = In(mean, x.where()) * In(factor, x.where());
  const Tensor term = bias->defined() ? bias - In(shift, x.where()) : -shift;
  return with_affine(x, x, factor, term);
}

}  // namespace heed

// The gradients of a step's shards, summed in an order that does not depend on who computed them.
#include <heed/optim/detail/gradient_tree.hpp>
#include <heed/optim/detail/with_kernels.hpp>
#include <utility>

namespace heed::detail {
namespace {

void add_chunk(const Tensor& sum, const Tensor& more, const Chunk& c) {
  with_kernels(sum.dtype(), [&](auto zero, const auto& k) {
    using T = decltype(zero);
    k.add(sum.ptr<T>() + c.begin, more.ptr<T>() + c.begin, c.count);
  });
}

// sum += more
void add(const Tensor& sum, const Tensor& more) {
  Chunks chunks;
  chunks.add(0, sum.numel());
  chunks.run([&](Index, const Chunk& c) { add_chunk(sum, more, c); });
}

}  // namespace

GradientTree::GradientTree(const std::vector<const Optimizer*>& optimizers) {
  for (const Optimizer* o : optimizers)
    for (std::size_t i = 0; i < o->trained_parameters().size(); ++i) {
      parameters_.push_back(o->trained_parameters()[i]);
      places_.push_back({o, i});
    }
}

void GradientTree::add_shard() {
  Sum shard = {1, std::vector<Tensor>(parameters_.size())};
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    ParameterInfo& p = parameters_[i].info();
    if (!std::exchange(p.has_gradient, false)) continue;
    shard.gradients[i] = std::exchange(p.gradient, Tensor());
  }
  sums_.push_back(std::move(shard));
  while (sums_.size() > 1 && sums_[sums_.size() - 2].shards == sums_.back().shards) join_last_two();
}

void GradientTree::finish() {
  while (sums_.size() > 1) join_last_two();
  for (std::size_t i = 0; i < parameters_.size() && !sums_.empty(); ++i) {
    ParameterInfo& p = parameters_[i].info();
    p.gradient = std::move(sums_[0].gradients[i]);
    p.has_gradient = p.gradient.defined();
  }
  sums_.clear();
}

void GradientTree::join_last_two() {
  const Sum right = std::move(sums_.back());
  sums_.pop_back();
  Sum& left = sums_.back();
  Chunks chunks;
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    Tensor& sum = left.gradients[i];
    if (!sum.defined())
      sum = right.gradients[i];
    else if (right.gradients[i].defined())
      chunks.add(static_cast<int>(i), sum.numel());
  }
  chunks.run([&](Index, const Chunk& c) {
    const auto i = static_cast<std::size_t>(c.parameter);
    add_chunk(left.gradients[i], right.gradients[i], c);
  });
  left.shards += right.shards;
}

Tensor GradientTree::take_sum(std::size_t parameter) {
  ParameterInfo& p = parameters_[parameter].info();
  Tensor sum = std::exchange(p.has_gradient, false) ? std::exchange(p.gradient, Tensor()) : Tensor();
  for (std::size_t k = sums_.size(); k-- > 0;) {
    Tensor left = std::exchange(sums_[k].gradients[parameter], Tensor());
    if (!left.defined()) continue;
    if (sum.defined()) add(left, sum);
    sum = std::move(left);
  }
  return sum;
}

}  // namespace heed::detail

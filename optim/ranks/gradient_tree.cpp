// Sums the gradients of a step's shards, in an order that does not depend on the rank or thread that computed them.
#include <heed/optim/optimizers/with_kernels.hpp>
#include <heed/optim/ranks/gradient_tree.hpp>
#include <heed/optim/ranks/rounded.hpp>
#include <utility>

namespace heed::detail {

GradientTree::GradientTree(const std::vector<DividedOptimizer>& optimizers, DType communication)
    : rounds_(communication == DType::bfloat16) {
  for (const auto& [optimizer, division] : optimizers)
    parameters_.insert(parameters_.end(), optimizer->trained_parameters().begin(),
                       optimizer->trained_parameters().end());
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
  if (sums_.empty()) return;  // the last shard is the only one
  add_shard();
  while (sums_.size() > 1) join_last_two();
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
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
  for (std::size_t i = 0; i < parameters_.size(); ++i)
    if (has_work(left.gradients[i], right.gradients[i])) chunks.add(static_cast<int>(i), parameters_[i].tensor.numel());
  chunks.run([&](Index, const Chunk& c) {
    const auto i = static_cast<std::size_t>(c.parameter);
    join_chunk(left.gradients[i], right.gradients[i], c);
  });
  for (std::size_t i = 0; i < parameters_.size(); ++i)
    if (!left.gradients[i].defined()) left.gradients[i] = right.gradients[i];
  left.shards += right.shards;
}

// Whether a join changes any items.
bool GradientTree::has_work(const Tensor& left, const Tensor& right) const {
  return rounds_ ? left.defined() || right.defined() : left.defined() && right.defined();
}

template <class T>
T* GradientTree::join(T* left, T* right, Index count) const {
  T* const sum = left == nullptr ? right : left;
  const bool both = left != nullptr && right != nullptr;
  if constexpr (std::is_same_v<T, float>)
    if (rounds_ && sum != nullptr) {
      both ? sent_kernels().add_both(left, right, count) : sent_kernels().round(sum, count);
      return sum;
    }
  if (both) kernels::of<T>(kernels::optimizer_table()).add(left, right, count);
  return sum;
}
template float* GradientTree::join(float*, float*, Index) const;
template double* GradientTree::join(double*, double*, Index) const;

void GradientTree::join_chunk(const Tensor& left, const Tensor& right, const Chunk& c) const {
  with_kernels((left.defined() ? left : right).dtype(), [&]<class T>(T, const auto&) {
    const auto at = [&c](const Tensor& x) { return x.defined() ? x.ptr<T>() + c.begin : nullptr; };
    join(at(left), at(right), c.count);
  });
}

Tensor GradientTree::take_sum(std::size_t parameter) {
  ParameterInfo& p = parameters_[parameter].info();
  Tensor sum = std::exchange(p.has_gradient, false) ? std::exchange(p.gradient, Tensor()) : Tensor();
  for (std::size_t k = sums_.size(); k-- > 0;) {
    Tensor left = std::exchange(sums_[k].gradients[parameter], Tensor());
    if (has_work(left, sum)) {
      Chunks chunks;
      chunks.add(0, parameters_[parameter].tensor.numel());
      chunks.run([&](Index, const Chunk& c) { join_chunk(left, sum, c); });
    }
    if (left.defined()) sum = std::move(left);
  }
  return sum;
}

}  // namespace heed::detail

// Exponential moving averages of weights.
#include <heed/optim/optimizers/average.hpp>
#include <heed/optim/optimizers/with_kernels.hpp>

namespace heed {

using detail::Chunk;

WeightAverage::WeightAverage(const ParameterGroups& parameters, double decay, bool ramp)
    : parameters_(detail::trained("WeightAverage", parameters)), decay_(decay), ramp_(ramp) {
  require(decay >= 0 && decay < 1, "WeightAverage: decay is ", decay, "; it must be at least 0 and below 1");
  const NoTape guard;
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    averages_.push_back(parameters_[i].tensor.detach().clone());
    chunks_.add(static_cast<int>(i), parameters_[i].tensor.numel());
  }
}

void WeightAverage::require_own(const char* what) const {
  require(!swapped_, "WeightAverage: ", what, " while the averages are swapped in; swap back first");
}

void WeightAverage::restart() {
  require_own("restart()");
  detail::check_owned("WeightAverage", "average", parameters_);
  for (std::size_t i = 0; i < parameters_.size(); ++i) averages_[i].copy_(parameters_[i].tensor.detach());
  updates_ = 0;
}

void WeightAverage::update() {
  require_own("update()");
  detail::check_owned("WeightAverage", "average", parameters_);
  const double n = static_cast<double>(++updates_), decay = ramp_ ? std::min(decay_, (1 + n) / (10 + n)) : decay_;
  chunks_.run([&](Index, const Chunk& c) {
    const auto i = static_cast<std::size_t>(c.parameter);
    detail::with_kernels(averages_[i].dtype(), [&]<class T>(T, const auto& k) {
      k.average(averages_[i].ptr<T>() + c.begin, parameters_[i].tensor.ptr<T>() + c.begin, c.count, 1 - decay);
    });
  });
  for (Tensor& a : averages_) a.bump_version();
}

void WeightAverage::swap() {
  detail::check_owned("WeightAverage", "average", parameters_);
  exchange();
}

void WeightAverage::exchange() {
  chunks_.run([&](Index, const Chunk& c) {
    const auto i = static_cast<std::size_t>(c.parameter);
    detail::with_kernels(averages_[i].dtype(), [&]<class T>(T, const auto& k) {
      k.swap(averages_[i].ptr<T>() + c.begin, parameters_[i].tensor.ptr<T>() + c.begin, c.count);
    });
  });
  for (Tensor& a : averages_) a.bump_version();
  for (detail::Trained& p : parameters_) p.tensor.bump_version();
  swapped_ = !swapped_;
}

std::vector<NamedTensor> WeightAverage::state() const {
  require_own("state()");
  std::vector<NamedTensor> parts;
  for (std::size_t i = 0; i < parameters_.size(); ++i)
    parts.push_back({"average." + parameters_[i].name, averages_[i]});
  parts.push_back({"updates", Tensor::scalar(static_cast<double>(updates_), DType::int32)});
  return parts;
}

void WeightAverage::load_state(const std::vector<NamedTensor>& given) {
  std::vector<NamedTensor> mine = state();
  detail::check_state("WeightAverage", mine, given);
  detail::copy_state(mine, given);
  updates_ = mine.back().tensor.item<Index>();
}

}  // namespace heed

// A step of an optimizer whose changes of weights are rounded to bfloat16.
#include <cstring>
#include <heed/optim/ranks/rounded.hpp>

namespace heed::detail {

RoundedStep::RoundedStep(Optimizer& optimizer, double gradient_scale, bool rounds)
    : optimizer_(optimizer), gradient_scale_(gradient_scale), rounds_(rounds) {
  optimizer_.begin_step();
  const std::vector<Trained>& parameters = optimizer_.trained_parameters();
  if (rounds_) old_.resize(parameters.size());
  for (std::size_t i = 0; i < old_.size(); ++i) {
    const Tensor& value = parameters[i].tensor;
    const bool is_whole = optimizer_.is_updated_whole(i) && optimizer_.parts()[i].count() == value.numel();
    if (parameters[i].active() && is_whole) old_[i] = value.detach().clone();
  }
  updated_ = &optimizer_.update_whole_parameters(gradient_scale_);
}

void RoundedStep::update(const Chunk& c, bfloat16* added) const {
  const auto i = static_cast<std::size_t>(c.parameter);
  if (!rounds_) return optimizer_.update_chunk(c, gradient_scale_);
  float* const values = optimizer_.trained_parameters()[i].tensor.ptr<float>() + c.begin;
  if ((*updated_)[i]) return round_step(values, old_[i].ptr<float>() + c.begin, added, c.count);
  float old[Chunks::kLongest];
  std::memcpy(old, values, static_cast<std::size_t>(c.count) * sizeof(float));
  optimizer_.update_chunk(c, gradient_scale_);
  round_step(values, old, added, c.count);
}

}  // namespace heed::detail

// The last weights of a run, and means over checkpoints.
#include <algorithm>
#include <heed/autograd/elementwise.hpp>
#include <heed/data/text.hpp>
#include <heed/optim/optimizers/average.hpp>

namespace heed {

LastWeights::LastWeights(const ParameterGroups& parameters, Exactly<Index> count)
    : parameters_(detail::trained("LastWeights", parameters)), count_(count) {
  require(count >= 1, "LastWeights: count is ", count, "; it must be 1 or more");
}

void LastWeights::keep() {
  detail::check_owned("LastWeights", "LastWeights", parameters_);
  std::vector<Tensor> now;
  if (kept() == count_) {  // reuses the memory of the oldest
    now = std::move(kept_.front());
    kept_.pop_front();
  }
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    const Tensor& value = parameters_[i].tensor;
    if (i < now.size())
      now[i].copy_(value.detach());
    else
      now.push_back(value.detach().clone());
  }
  kept_.push_back(std::move(now));
}

// The mean of `count` tensors with this float64 sum, rounded once.
static Tensor mean_of(const Tensor& sum, std::size_t count, DType dtype) {
  return (sum / static_cast<double>(count)).to(dtype);
}

void LastWeights::load_mean() {
  require(!kept_.empty(), "LastWeights: load_mean() has no weights to average; call keep() first");
  detail::check_owned("LastWeights", "LastWeights", parameters_);
  const NoTape guard;
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    Tensor sum = kept_.front()[i].to(DType::float64);
    for (std::size_t n = 1; n < kept_.size(); ++n) sum = sum + kept_[n][i].to(DType::float64);
    parameters_[i].tensor.copy_(mean_of(sum, kept_.size(), kept_.front()[i].dtype()));
  }
}

std::vector<NamedTensor> LastWeights::state() const {
  std::vector<NamedTensor> parts;
  for (std::size_t n = 0; n < kept_.size(); ++n)
    for (std::size_t i = 0; i < parameters_.size(); ++i)
      parts.push_back({std::to_string(n) + "." + parameters_[i].name, kept_[n][i]});
  parts.push_back({"count", Tensor::scalar(static_cast<double>(count_), DType::int32)});
  parts.push_back({"kept", Tensor::scalar(static_cast<double>(kept_.size()), DType::int32)});
  return parts;
}

void LastWeights::load_state(const std::vector<NamedTensor>& given) {
  const auto number = [&given](const char* name) {
    const auto found = std::ranges::find(given, name, &NamedTensor::name);
    require(found != given.end() && found->tensor.defined() && found->tensor.shape() == Shape{} &&
                found->tensor.dtype() == DType::int32,
            "LastWeights: the state has no int32 scalar '", name, "'; it must be the state of LastWeights");
    return found->tensor.item<Index>();
  };
  const Index count = number("count"), kept = number("kept");
  require(count == count_, "LastWeights: count is ", count, " in the state but ", count_,
          " here; they must be the same");
  require(kept >= 0 && kept <= count, "LastWeights: kept is ", kept, " in the state; it must be from 0 to count, ",
          count);
  LastWeights loaded = *this;
  loaded.kept_.assign(static_cast<std::size_t>(kept), {});
  for (std::vector<Tensor>& weights : loaded.kept_)
    for (const detail::Trained& p : parameters_) weights.push_back(Tensor::empty_like(p.tensor));
  std::vector<NamedTensor> mine = loaded.state();
  detail::check_state("LastWeights", mine, given);
  detail::copy_state(mine, given);
  kept_ = std::move(loaded.kept_);
}

Checkpoint mean_of_last_weights(Checkpoint c) {
  const auto found = c.tensors.find("last_weights/kept");
  const Index kept = found == c.tensors.end() ? 0 : found->second.item<Index>();
  const auto weights = [&c](Index n, std::string_view name) -> const Tensor& {
    return c.tensor("last_weights/" + std::to_string(n) + "." + std::string(name));
  };
  const NoTape guard;
  for (auto& [path, tensor] : c.tensors) {
    if (!path.starts_with("model/") || kept == 0) continue;
    const std::string_view name = std::string_view(path).substr(6);
    if (!c.tensors.contains("last_weights/0." + std::string(name))) continue;  // a buffer, or not kept
    Tensor sum = weights(0, name).to(DType::float64);
    for (Index n = 1; n < kept; ++n) sum = sum + weights(n, name).to(DType::float64);
    require(sum.shape() == tensor.shape(), c.source, ": ", printable(std::string(name)), " is ", sum.shape(),
            " in last_weights but ", tensor.shape(), " in the model; they must be the same");
    tensor = mean_of(sum, static_cast<std::size_t>(kept), tensor.dtype());
  }
  std::erase_if(c.tensors, [](const auto& t) { return !t.first.starts_with("model/"); });
  c.counters.clear();
  return c;
}

Checkpoint average_checkpoints(const std::vector<std::filesystem::path>& files) {
  require(!files.empty(), "average_checkpoints: there are no files; there must be one or more");
  const NoTape guard;
  Checkpoint mean;     // the last file read; means replace its values at the end
  TensorsByName sums;  // float64
  for (std::size_t n = 0; n < files.size(); ++n) {
    Checkpoint next = load_checkpoint(files[n]);
    next.counters.clear();
    std::erase_if(next.tensors, [](const auto& t) { return !t.first.starts_with("model/"); });
    require(!next.tensors.empty(), "average_checkpoints: ", files[n].string(), " holds no model");
    const auto check_same = [&](const std::string& name) {
      const auto a = mean.tensors.find(name), b = next.tensors.find(name);
      const bool here = b != next.tensors.end(), before = a != mean.tensors.end();
      const auto described = [&](bool has, auto at) { return has ? describe(at->second) : std::string("missing"); };
      require(here && before && a->second.shape() == b->second.shape() && a->second.dtype() == b->second.dtype(),
              "average_checkpoints: ", printable(name), " is ", described(here, b), " in ", files[n].string(), " but ",
              described(before, a), " in ", files.front().string(), "; the files must be of the same model");
    };
    for (const auto& [name, tensor] : mean.tensors) check_same(name);
    for (const auto& [name, tensor] : next.tensors) {
      if (n > 0) check_same(name);
      if (!is_floating(tensor.dtype())) continue;
      const Tensor value = tensor.to(DType::float64);
      sums[name] = n == 0 ? value : sums[name] + value;
    }
    mean = std::move(next);
  }
  for (const auto& [name, sum] : sums) {
    Tensor& tensor = mean.tensors[name];
    tensor = mean_of(sum, files.size(), tensor.dtype());
  }
  return mean;
}

}  // namespace heed

// An exponential moving average of the weights, which often evaluates better than the weights themselves.
//
// RunOptions::average has run() do the updates, evaluate the averages, and keep them over a resume.
//
// Example:
//
//   Rng rng(1);
//   Linear model(4, 2, rng);
//   WeightAverage average(named_parameters(model), 0.999);
//   average.update();  // after each step of the optimizer
//   {
//     AveragedWeights scope(average);  // the model has the averages inside
//     const Tensor y = model(rng.normal({3, 4}));
//   }
#pragma once
#include <heed/optim/parameter_group.hpp>
#include <vector>

namespace heed {

class WeightAverage {
 public:
  // Starts from the weights as they are. decay is in [0, 1). With `ramp`, update n (from 1) uses
  // min(decay, (1 + n) / (10 + n)), so that short runs forget the start.
  WeightAverage(const ParameterGroups& parameters, double decay, bool ramp = false);

  void update();  // average = decay * average + (1 - decay) * weights; Error while swapped in
  Index updates() const { return updates_; }

  // Exchanges the averages and the model's weights, exactly: twice changes nothing. This and update() are an Error once
  // the model let go of a parameter (by to(), tie() or another in its place): the average is to be made after that.
  void swap();
  bool swapped() const { return swapped_; }  // the model has the averages now

  // "average.blocks.0.weight" and so on, the averages' own storage, and "updates" int32; for checkpoints. Error while
  // swapped in.
  std::vector<NamedTensor> state() const;
  void load_state(const std::vector<NamedTensor>& state);  // throws Error, changing nothing, where it does not match

 private:
  friend class AveragedWeights;

  std::vector<detail::Trained> parameters_;
  std::vector<Tensor> averages_;
  detail::Chunks chunks_;
  double decay_;
  bool ramp_;
  bool swapped_ = false;
  Index updates_ = 0;

  void require_own(const char* what) const;
  void exchange();  // swap() without its Error
};

// Swaps the averages in for as long as it lives. Within another of the same average it does nothing: they are in.
class AveragedWeights {
 public:
  explicit AveragedWeights(WeightAverage& average) : average_(average), outermost_(!average.swapped()) {
    if (outermost_) average_.swap();
  }
  ~AveragedWeights() {
    if (outermost_ && average_.swapped()) average_.exchange();  // a destructor must not throw
  }
  AveragedWeights(const AveragedWeights&) = delete;
  AveragedWeights& operator=(const AveragedWeights&) = delete;

 private:
  WeightAverage& average_;
  bool outermost_;
};

}  // namespace heed

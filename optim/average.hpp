// Averages of the weights of several steps, which often evaluate better than those of one: an exponential moving
// average, and the mean of the last ones.
//
// RunOptions::average has run() update a moving average, evaluate it, and keep it over a resume;
// RunOptions::last_weights has it keep the last weights.
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
//   LastWeights last(named_parameters(model), 5);
//   last.keep();  // now and then
//   last.load_mean();
#pragma once
#include <deque>
#include <filesystem>
#include <heed/data/checkpoint.hpp>
#include <heed/optim/parameter_group.hpp>
#include <vector>

namespace heed {

class WeightAverage {
 public:
  // Starts from the weights as they are. decay is in [0, 1). With `ramp`, update n (from 1) uses
  // min(decay, (1 + n) / (10 + n)), so that short runs forget the start.
  WeightAverage(const ParameterGroups& parameters, double decay, bool ramp = false);

  void restart();  // from the weights as they are now, as a new one; Error while swapped in
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

// The weights as they were at the last `count` calls of keep(), and their mean: the average of the last checkpoints of
// Vaswani et al. 2017, section 6.1, who take 5 for their base models and 20 for the big ones. Each takes as much memory
// as the parameters.
class LastWeights {
 public:
  LastWeights(const ParameterGroups& parameters, Exactly<Index> count);

  void keep();  // the weights as they are now; the oldest go where there are `count` already
  Index count() const { return count_; }
  Index kept() const { return static_cast<Index>(kept_.size()); }

  // Gives the model the mean of those kept, summed in float64 from the oldest on and rounded once. Error where none are
  // kept. This and keep() are an Error once the model let go of a parameter, as of WeightAverage.
  void load_mean();

  // "0.blocks.0.weight" and so on, the oldest first, in their own storage, "count" and "kept" int32; for checkpoints.
  std::vector<NamedTensor> state() const;
  void load_state(const std::vector<NamedTensor>& state);  // throws Error, changing nothing, where it does not match

 private:
  std::vector<detail::Trained> parameters_;
  std::deque<std::vector<Tensor>> kept_;  // the oldest first
  Index count_;

  static std::vector<NamedTensor> named(const std::vector<detail::Trained>& parameters,
                                        const std::deque<std::vector<Tensor>>& kept, Index count);
};

// What several checkpoints of one model hold of it, averaged as LastWeights does: parameters and floating buffers; all
// else of the model, and texts and blobs, are the last one's. A run cannot go on from it. Error: no files; one that
// cannot be read; other names, shapes or dtypes than in the first.
//
//   load_model(average_checkpoints({"a.h5", "b.h5"}), model);
Checkpoint average_checkpoints(const std::vector<std::filesystem::path>& files);

// What a checkpoint holds of a model, which has the mean of the last weights where a run with RunOptions::last_weights
// left it. A run cannot go on from it.
//
//   load_model(mean_of_last_weights(load_checkpoint("run.h5")), model);
Checkpoint mean_of_last_weights(Checkpoint checkpoint);

}  // namespace heed

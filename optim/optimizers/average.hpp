// Averages of weights over several steps, which often evaluate better than the weights of one step: an exponential
// moving average, and the mean of the last weights.
//
// With RunOptions::average, run() updates a moving average, evaluates it and stores it in checkpoints. With
// RunOptions::last_weights, run() keeps the last weights.
//
// Example:
//
//   Rng rng(1);
//   Linear model(4, 2, rng);
//   WeightAverage average(named_parameters(model), 0.999);
//   average.update();  // after each step of the optimizer
//   {
//     AveragedWeights scope(average);  // the model has the averages in this scope
//     const Tensor y = model(rng.normal({3, 4}));
//   }
//   LastWeights last(named_parameters(model), 5);
//   last.keep();  // once per epoch, for example
//   last.load_mean();
#pragma once
#include <deque>
#include <filesystem>
#include <heed/data/checkpoint.hpp>
#include <heed/optim/optimizers/parameter_group.hpp>
#include <vector>

namespace heed {

// An exponential moving average of the weights of a model.
class WeightAverage {
 public:
  // Starts from the current weights. Throws Error unless decay is in [0, 1). With `ramp`, update n (from 1) uses
  // min(decay, (1 + n) / (10 + n)), so that short runs forget the initial weights.
  WeightAverage(const ParameterGroups& parameters, double decay, bool ramp = false);

  void restart();  // starts again from the current weights; throws Error while swapped in
  void update();   // average = decay * average + (1 - decay) * weights; throws Error while swapped in
  Index updates() const { return updates_; }  // calls of update() since the start or restart()

  // Exchanges the averages and the model's weights exactly: two calls change nothing. swap(), update() and restart()
  // throw Error if no model owns one of the parameters any more. Make the average after calls that replace parameters
  // (to(), tie(), assignment).
  void swap();
  bool swapped() const { return swapped_; }  // whether the model has the averages now

  // For checkpoints: "average.blocks.0.weight" and so on, handles to the averages, and "updates" int32. Throws Error
  // while swapped in.
  std::vector<NamedTensor> state() const;
  void load_state(const std::vector<NamedTensor>& state);  // throws Error, and changes nothing, unless it matches

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
  void exchange();  // swap() without its check
};

// Swaps the averages in during its lifetime. Does nothing if they are swapped in already.
class AveragedWeights {
 public:
  // Swaps the averages in if the model has its own weights.
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

// The weights at the last `count` calls of keep(), and their mean: the average of the last checkpoints in Vaswani et
// al., 2017, section 6.1 (5 for base models, 20 for big models). Each needs as much memory as the parameters.
class LastWeights {
 public:
  // Throws Error unless count is 1 or more.
  LastWeights(const ParameterGroups& parameters, Exactly<Index> count);

  void keep();  // keeps the current weights; if `count` are kept already, drops the oldest
  Index count() const { return count_; }                           // max number of kept weights
  Index kept() const { return static_cast<Index>(kept_.size()); }  // number of kept weights, at most count()

  // Sets the model's weights to the mean of the kept weights, summed in float64 from the oldest on and rounded once.
  // Throws Error if none are kept. load_mean() and keep() throw Error if no model owns one of the parameters any more.
  void load_mean();

  // For checkpoints: "0.blocks.0.weight" and so on, handles, the oldest first; "count" and "kept" int32.
  std::vector<NamedTensor> state() const;
  void load_state(const std::vector<NamedTensor>& state);  // throws Error, and changes nothing, unless it matches

 private:
  std::vector<detail::Trained> parameters_;
  std::deque<std::vector<Tensor>> kept_;  // [kept][parameter], the oldest first
  Index count_;
};

// The model of several checkpoints, with parameters and floating buffers averaged as by LastWeights. Everything else of
// the model, texts and blobs are those of the last file. A run cannot resume from the result. Throws Error if there are
// no files, if a file cannot be read, or if its names, shapes or dtypes differ from the first.
//
//   load_model(average_checkpoints({"a.h5", "b.h5"}), model);
Checkpoint average_checkpoints(const std::vector<std::filesystem::path>& files);

// The model of a checkpoint. If the checkpoint is of a run with RunOptions::last_weights, parameters have the mean of
// the last weights. A run cannot resume from the result.
//
//   load_model(mean_of_last_weights(load_checkpoint("run.h5")), model);
Checkpoint mean_of_last_weights(Checkpoint checkpoint);

}  // namespace heed

// A run with a small model with dropout, and a small data set.
#pragma once
#include <cstdio>
#include <heed/heed.hpp>

#include "tests/support.hpp"

namespace heed::test {

// y = x W* + noise, computed for every step: a user-defined data set.
struct Plane {
  Index rows = 64, width = 8;
  Batch batch(std::uint64_t seed, std::uint64_t step) const {
    Rng rng(seed, 100 + step);
    const Tensor x = rng.normal({rows, width});
    Rng truth(7);
    const Tensor target = matmul(x, truth.normal({width, 1})) + 0.01 * rng.normal({rows, 1});
    return {x, target.detach(), rows};
  }
};

// Thrown after step `last`, as if the run was killed: nothing more is saved.
struct Killed {};
inline RunOptions killed_after(RunOptions options, Index last) {
  options.after_step = [last](RunStep& s) {
    if (s.step == last) throw Killed{};
  };
  return options;
}

// Three batches of different size.
struct HeldOutPlane {
  Index size() const { return 3; }
  Batch batch(Index i) const { return Plane{.rows = 10 + 20 * i}.batch(99, static_cast<std::uint64_t>(i)); }
};

struct Regression {
  Linear up, down;
  Dropout drop{0.1};

  explicit Regression(Rng& rng) : up(8, 16, rng), down(16, 1, rng) {}
  Tensor loss(In x, In y) const { return mse_loss(down(drop(relu(up(x)))), y); }
  void members(auto&& visit) {
    visit("up", up);
    visit("down", down);
  }
};

struct PlaneRun {
  Rng rng{3};
  Regression model{rng};
  AdamW optimizer{named_parameters(model), {.lr = 3e-2}};
  Schedule schedule{"cosine", {.lr = 3e-2, .min_lr = 1e-3, .warmup = 5, .steps = 40}};
  WeightAverage average{named_parameters(model), 0.9};  // used by runs whose options name it

  RunResult go(const RunOptions& options, Dataset data = Plane{}, EvaluationSet held_out = HeldOutPlane{}) {
    return run(model, optimizer, schedule, std::move(data), std::move(held_out), options);
  }
  std::string refusal(const RunOptions& options, Dataset data = Plane{}) {
    return error_of([&] { go(options, data); });
  }
};

// The progress output of go(options), which sets options.output.progress to a temporary file.
template <class Go>
std::string progress_of(RunOptions options, const Go& go) {
  std::FILE* file = std::tmpfile();
  options.output.progress = file;
  go(options);
  std::rewind(file);
  std::string text;
  for (int c = std::fgetc(file); c != EOF; c = std::fgetc(file)) text += static_cast<char>(c);
  std::fclose(file);
  return text;
}
inline std::string progress_of(PlaneRun& s, const RunOptions& options) {
  return progress_of(options, [&](const RunOptions& o) { s.go(o); });
}

// A run whose evaluations return these losses and accuracies, independent of the weights.
struct ScriptedRun {
  std::vector<double> losses, accuracies = std::vector<double>(losses.size());
  PlaneRun plane = {};
  Index evaluations = 0;  // made by this process

  // Evaluates at every step. `from`: number of evaluations before the resume.
  RunResult go(const RunOptions& options, Index from = 0) {
    return run(plane.model, plane.optimizer, plane.schedule, Plane{}, OneBatch{}, options, {}, [&, from](const Batch&) {
      const auto i = static_cast<std::size_t>(from + evaluations++);
      return Metrics{{"loss", losses.at(i)}, {"accuracy", accuracies.at(i)}};
    });
  }
  struct OneBatch {
    Index size() const { return 1; }
    Batch batch(Index) const { return Plane{}.batch(99, 0); }
  };
};

}  // namespace heed::test

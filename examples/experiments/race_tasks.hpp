// What the race trains: tasks with their data, and for each the models that compete.
#pragma once
#include <functional>
#include <heed/data/batches.hpp>
#include <heed/layers/gpt.hpp>
#include <heed/layers/model_config.hpp>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace heed::examples {

// How well a model does on what is held out.
struct RaceScore {
  double loss = 0;                       // nats a target that counts
  double right = 0;                      // share of right symbols (copy) or of right answers
  std::vector<double> by_distance = {};  // share of right answers, by kDistances; empty for copy
};

struct RaceTask {
  std::string name, about;
  Index steps = 0;
  GPTOptions model;
  Index tokens = 0;  // a step
  Dataset training;
  std::function<RaceScore(const GPT&, Index batches)> score;        // on so many batches at most; 0: all
  std::optional<double> floor = {};                                 // no model's loss is below
};

// One model of one task.
struct RaceEntry {
  std::shared_ptr<const RaceTask> task;
  std::string label, mechanism;
  GPTOptions model;
  MechanismOptions options = {};
};

// The model of a race: a GPT, or an encoder, of which each weight is a function of the seed, its name and its shape,
// and mechanisms draw theirs apart: two models of one seed have the same weights in all that they share.
GPT race_model(const GPTOptions& options, std::uint64_t seed, const MechanismFactory& mechanism);

// copy: a sequence and the same again, for causal mechanisms. Accuracy of the second half.
// stories: a language model, for causal mechanisms. Accuracy of the answers to the stories' questions.
// rank: the same with queries and keys of d = 8, for softmax and for linear attention; for that with 4 d as well, of
//   queries and keys alone or of all. (The low-rank bottleneck: features of d numbers give matrices of rank d at most.)
// linformer: encoders that fill in the stories' masked answers; Linformer with m = 4, 8, 16, 32 rows of keys.
const std::vector<std::string>& race_task_names();

// The entries of a task, in order; `mechanisms` are those of copy and stories. Data and models are functions of the
// seed. `own`: options of the mechanisms of copy and stories; windows are else an eighth of a row, as the rows are
// short. Throws Error for an unknown name.
std::vector<RaceEntry> race_entries(const std::string& task, const std::vector<std::string>& mechanisms,
                                    std::uint64_t seed, const MechanismOptions& own = {});

}  // namespace heed::examples

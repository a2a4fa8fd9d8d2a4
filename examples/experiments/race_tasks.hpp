// The tasks of the race with their data, and the models that compete in each.
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

// The score of a model on held-out data.
struct RaceScore {
  double loss = 0;                       // nats per counted target
  double right = 0;                      // share of right symbols (copy) or of right answers
  std::vector<double> by_distance = {};  // share of right answers, by kDistances; empty for copy
};

// A task: its data, its model, and the score.
struct RaceTask {
  std::string name, about;  // about: for titles
  Index steps = 0;
  GPTOptions model;        // entries may change its sizes
  Index tokens = 0;        // per step
  bool distances = false;  // whether the score has right answers by distance
  Dataset training;
  std::function<RaceScore(const GPT&, Index batches)> score;  // on at most this many batches; 0: all
  std::optional<double> floor = {};                           // no model has a lower loss
};

// One model of one task.
struct RaceEntry {
  std::shared_ptr<const RaceTask> task;
  std::string label, mechanism;
  GPTOptions model;
  MechanismOptions options = {};
};

// Makes a GPT, or an encoder if it is not causal. Each weight depends on the seed, its name and its shape only, and
// mechanisms draw theirs from other streams: two models of one seed have the same weights in all parts that they share.
GPT race_model(const GPTOptions& options, std::uint64_t seed, const MechanismFactory& mechanism);

// The names of the tasks:
// - copy: a sequence and the same again, for causal mechanisms. Scored by the accuracy of the second half.
// - recall: pairs of keys and values, and the value of each key, for causal mechanisms (RecallBatches).
// - tracking: which thing is at the first of five places after swaps, for causal mechanisms (SwapBatches). Delta rules
//   have a second run with rates up to 2, unless `own` sets max_rate.
// - stories: a language model, for causal mechanisms. Scored by the answers to the questions of the stories.
// - rank: the same with queries and keys of size d = 8, for softmax and linear attention. Linear attention has runs
//   with size 4 d, of queries and keys or of values too. (The low-rank bottleneck: features of size d give matrices of
//   rank d at most.)
// - linformer: encoders that fill in masked answers of stories. Linformer has m = 4, 8, 16, 32 rows of keys.
// - lengths: four tasks as linformer, with 1, 2, 4 and 8 stories per row: m stays 16 while the length grows.
const std::vector<std::string>& race_task_names();

// Whether --mechanisms is for this task: copy, recall, tracking and stories.
bool takes_mechanisms(const std::string& task);

// The entries of a task, in order. `mechanisms` are those of tasks that take them, `own` their options; the default of
// windows is an eighth of a row, because rows are short. Data and models depend on the seed only. Throws Error for an
// unknown name.
std::vector<RaceEntry> race_entries(const std::string& task, const std::vector<std::string>& mechanisms,
                                    std::uint64_t seed, const MechanismOptions& own = {});

}  // namespace heed::examples

#include "examples/support/race_tasks.hpp"

#include <heed/autograd/elementwise.hpp>
#include <heed/autograd/extrema.hpp>
#include <heed/autograd/reductions.hpp>
#include <heed/data/copy_task.hpp>
#include <heed/optim/run_loop.hpp>

#include "examples/support/lm_data.hpp"
#include "examples/support/race_questions.hpp"

namespace heed::examples {
namespace {

constexpr Index kCopySteps = 1500, kStorySteps = 1200;
constexpr double kStoryRate = 3e-3;                        // at 1e-3 hardly a question is answered after so few steps
constexpr Index kStoryBatch = 8;                           // windows, and stories, a step
constexpr Index kCopyHeldOut = 16, kQuestionBatches = 32;  // batches
constexpr std::uint64_t kTrainingStories = 0, kHeldOutStories = 1;  // as of load_data: two seeds of stories a seed

Index limited(Index batches, Index all) { return batches > 0 ? std::min(batches, all) : all; }

Tensor likeliest(const RaceModel& model, const Tensor& inputs) { return argmax(model.logits(inputs), -1); }

RaceScore score_copy(const RaceModel& model, const CopyTask& task, std::uint64_t seed, Index batches) {
  const NoTape no_tape;
  RaceScore score;
  const Index n = limited(batches, kCopyHeldOut);
  double counted = 0;
  for (Index i = 0; i < n; ++i) {
    const Batch b = task.batch(seed, static_cast<std::uint64_t>(i));
    score.loss += model.loss(b).item() / static_cast<double>(n);
    score.right += sum(eq(likeliest(model, b.inputs), b.targets).to(DType::float32)).item();
    counted += static_cast<double>(b.counted);
  }
  score.right /= counted;
  return score;
}

std::shared_ptr<RaceTask> copy_task(std::uint64_t seed) {
  const CopyTask training, held_out({.held_out = true});
  const CopyTaskOptions o = training.options();
  return std::make_shared<RaceTask>(
      // One layer, so that each place must be reached in one step.
      RaceTask{.name = "copy",
               .about = "63 of 10 symbols, and the same again; loss and accuracy of the second half",
               .steps = kCopySteps,
               .model = {.vocabulary = training.vocabulary(), .context = o.length, .layers = 1, .hidden = 64},
               .tokens = o.batch * o.length,
               .training = training,
               .score = [held_out, seed](const RaceModel& model, Index batches) {
                 return score_copy(model, held_out, seed, batches);
               }});
}

// The share of right answers of a language model: at each character of the answer, all before it are given (teacher
// forcing), so that an answer is right where the model's greedy choices spell it.
void score_answers(RaceScore& score, const RaceModel& model, const Tokenizer& tokenizer, std::uint64_t seed,
                   Index batches) {
  const NoTape no_tape;
  const Stories stories;
  AnswerCount count;
  for (Index i = 0; i < limited(batches, kQuestionBatches); ++i) {
    const Index rows = 4 * kStoryBatch;
    const StoryRows asked =
        story_rows(stories, tokenizer, 2 * seed + kHeldOutStories, static_cast<std::uint64_t>(i * rows), rows);
    const Tensor next = likeliest(model, asked.tokens);  // [rows, T]: of each place, the token behind it
    Tensor predicted = Tensor::zeros(next.shape(), DType::int32);
    predicted.slice(1, 1, next.dim(1)).copy_(next.slice(1, 0, next.dim(1) - 1));
    count.add(asked, predicted);
  }
  score.right = count.share();
  score.by_distance = count.shares();
}

std::shared_ptr<RaceTask> story_task(const std::string& name, const std::string& about, std::uint64_t seed) {
  LmSettings s;
  s.batch = kStoryBatch;
  s.context = kLongestStory;
  s.seed = seed;
  const LmData data = load_data(s, nullptr);
  return std::make_shared<RaceTask>(
      RaceTask{.name = name,
               .about = about,
               .steps = kStorySteps,
               .lr = kStoryRate,
               .model = {.vocabulary = data.tokenizer.vocabulary_size(), .context = s.context},
               .tokens = s.batch * s.context,
               .training = data.training,
               .score =
                   [data, seed](const RaceModel& model, Index batches) {
                     RaceScore score;
                     score.loss = evaluate([&](const Batch& b) { return model.loss(b); }, data.validation, batches);
                     score_answers(score, model, data.tokenizer, seed, batches);
                     return score;
                   },
               .floor = data.floor});
}

// Stories of a batch each, their answers masked.
struct MaskedStories {
  Tokenizer tokenizer;
  std::int32_t mask;
  Stories stories = Stories();

  Batch batch(std::uint64_t seed, std::uint64_t step) const {
    return masked_answers(story_rows(stories, tokenizer, 2 * seed + kTrainingStories,
                                     step * static_cast<std::uint64_t>(kStoryBatch), kStoryBatch),
                          mask);
  }
};

RaceScore score_masked(const RaceModel& model, const MaskedStories& masked, std::uint64_t seed, Index batches) {
  const NoTape no_tape;
  AnswerCount count;
  double loss = 0, counted = 0;
  for (Index i = 0; i < limited(batches, kQuestionBatches); ++i) {
    const Index rows = 4 * kStoryBatch;
    const StoryRows asked = story_rows(masked.stories, masked.tokenizer, 2 * seed + kHeldOutStories,
                                       static_cast<std::uint64_t>(i * rows), rows);
    const Batch b = masked_answers(asked, masked.mask);
    loss += model.loss(b).item() * static_cast<double>(b.counted);
    counted += static_cast<double>(b.counted);
    count.add(asked, likeliest(model, b.inputs));
  }
  return {loss / counted, count.share(), count.shares()};
}

std::shared_ptr<RaceTask> masked_task(std::uint64_t seed) {
  const Tokenizer tokenizer = make_tokenizer("char", "\n" + Stories().text(0, 1000000));
  const MaskedStories masked{tokenizer, static_cast<std::int32_t>(tokenizer.vocabulary_size())};
  return std::make_shared<RaceTask>(RaceTask{.name = "linformer",
                                             .about = "encoders that fill in the masked answers of stories",
                                             .steps = kStorySteps,
                                             .lr = kStoryRate,
                                             .model = {.vocabulary = tokenizer.vocabulary_size() + 1,
                                                       .context = static_cast<Index>(kLongestStory),
                                                       .causal = false},
                                             .tokens = kStoryBatch * static_cast<Index>(kLongestStory),
                                             .training = masked,
                                             .score = [masked, seed](const RaceModel& model, Index batches) {
                                               return score_masked(model, masked, seed, batches);
                                             }});
}

RaceEntry entry(const std::shared_ptr<const RaceTask>& task, const std::string& label, const std::string& mechanism,
                std::uint64_t seed, Index qk_times = 1, Index v_times = 1, Index rows = 0) {
  RaceEntry e{task, label, mechanism, task->model};
  e.model.qk_size *= qk_times;
  e.model.v_size *= v_times;
  e.options = {.causal = e.model.causal,
               .heads = e.model.heads,
               .head_size = e.model.qk_size,
               .context = e.model.context,
               .rows = rows,
               .seed = seed};
  return e;
}

}  // namespace

const std::vector<std::string>& race_task_names() {
  static const std::vector<std::string> names = {"copy", "stories", "rank", "linformer"};
  return names;
}

std::vector<RaceEntry> race_entries(const std::string& task, const std::vector<std::string>& mechanisms,
                                    std::uint64_t seed) {
  if (task == "rank") {
    const auto t = story_task(task, "stories again: linear attention with heads of 1 and 4 times the size", seed);
    std::vector<RaceEntry> entries = {entry(t, "softmax", "softmax", seed), entry(t, "linear", "linear", seed),
                                      entry(t, "linear, 4x q k", "linear", seed, 4),
                                      entry(t, "linear, 4x all", "linear", seed, 4, 4)};
    entries[0].repeats = entries[1].repeats = "stories";
    return entries;
  }
  std::vector<RaceEntry> entries;
  if (task == "linformer") {
    const auto t = masked_task(seed);
    entries.push_back(entry(t, "softmax", "softmax", seed));
    entries.push_back(entry(t, "efficient", "efficient", seed));
    for (const Index m : {8, 16, 32, 64})
      entries.push_back(entry(t, "linformer " + std::to_string(m), "linformer", seed, 1, 1, m));
    return entries;
  }
  require(task == "copy" || task == "stories", "race: the task is '", task,
          "'; it must be copy, stories, rank or linformer");
  const auto t = task == "copy" ? copy_task(seed)
                                : story_task(task, "a language model; answers by their distance from the fact", seed);
  for (const std::string& name : mechanisms) entries.push_back(entry(t, name, name, seed));
  return entries;
}

}  // namespace heed::examples

// The tasks of the race: copying a sequence, recall, state tracking, and questions about stories.
#include "examples/experiments/race_tasks.hpp"

#include <algorithm>
#include <heed/autograd/elementwise.hpp>
#include <heed/autograd/reductions.hpp>
#include <heed/core/names.hpp>
#include <heed/data/tasks.hpp>

#include "examples/experiments/race_questions.hpp"
#include "examples/experiments/race_synthetic.hpp"
#include "examples/support/story_seeds.hpp"

namespace heed::examples {
namespace {

constexpr Index kSyntheticSteps = 1500, kSyntheticHeldOut = 16;
constexpr Index kCopySteps = 1500, kStorySteps = 1500, kMaskedSteps = 2500;
constexpr Index kStoryBatch = 32, kScored = 128;        // stories per step, and per batch of an evaluation
constexpr Index kCopyHeldOut = 16, kStoryHeldOut = 32;  // in batches

// Random streams of the seed: one per weight, and one per layer for its mechanism.
constexpr std::uint64_t kWeights = std::uint64_t{0x3ACE0} << 44, kMechanisms = std::uint64_t{0x3ACE1} << 44;

// FNV-1a hash, 32 bits.
std::uint64_t number_of(const std::string& name) {
  std::uint32_t hash = 2166136261u;
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 16777619u;
  return hash;
}

// Heads of size 32 for queries, keys and values; some tasks change it.
GPTOptions model_options(Index vocabulary, Index context) {
  return {.vocabulary = vocabulary,
          .context = context,
          .blocks = {
              .layers = 2, .attention = {.width = 128, .heads = 4, .key_size = 32, .value_size = 32}, .hidden = 256}};
}

Index limited(Index batches, Index all) { return batches > 0 ? std::min(batches, all) : all; }

Tensor likeliest(const GPT& model, const Tensor& inputs) { return argmax(model(inputs), -1); }

// The score of a task whose targets are the tokens to predict: the loss, and the share of right tokens.
template <class Batches>
RaceScore score_targets(const GPT& model, const Batches& task, std::uint64_t seed, Index batches, Index held_out) {
  const NoTape no_tape;
  RaceScore score;
  const Index n = limited(batches, held_out);
  double counted = 0;
  for (Index i = 0; i < n; ++i) {
    const Batch b = task.batch(seed, static_cast<std::uint64_t>(i));
    score.loss += model.loss(b.inputs, b.targets).item() / static_cast<double>(n);
    score.right += sum(eq(likeliest(model, b.inputs), b.targets).to(DType::float32)).item();
    counted += static_cast<double>(b.counted);
  }
  score.right /= counted;
  return score;
}

std::shared_ptr<RaceTask> copy_task(std::uint64_t seed) {
  const CopyTask training, held_out({.held_out = true});
  const CopyTaskOptions o = training.options();
  GPTOptions shape = model_options(training.vocabulary(), o.length);
  shape.blocks.layers = 1, shape.blocks.hidden = 64;  // one layer, so that each key must be found in one step
  return std::make_shared<RaceTask>(
      RaceTask{.name = "copy",
               .about = "63 symbols of 10 kinds, and their copy; loss and accuracy of the copy",
               .steps = kCopySteps,
               .model = shape,
               .tokens = o.batch * o.length,
               .training = training,
               .score = [held_out, seed](const GPT& model, Index batches) {
                 return score_targets(model, held_out, seed, batches, kCopyHeldOut);
               }});
}

template <class Batches>
std::shared_ptr<RaceTask> synthetic_task(const std::string& name, const std::string& about, std::uint64_t seed) {
  const Batches training, held_out{.held_out = true};
  return std::make_shared<RaceTask>(RaceTask{.name = name,
                                             .about = about,
                                             .steps = kSyntheticSteps,
                                             .model = model_options(Batches::kVocabulary, Batches::kLength),
                                             .tokens = training.rows * Batches::kLength,
                                             .training = training,
                                             .score = [held_out, seed](const GPT& model, Index batches) {
                                               return score_targets(model, held_out, seed, batches, kSyntheticHeldOut);
                                             }});
}

// One story per row, for a language model, or several with masked answers. Each step has kStoryBatch stories.
struct WordBatches {
  std::shared_ptr<const StoryReader> reader;
  bool masked;
  Index stories = 1;  // per row

  Index vocabulary() const { return reader->vocabulary() + (masked ? 1 : 0); }
  Batch of(const StoryRows& rows) const {
    if (!masked) return next_words(rows);
    Batch b = masked_answers(rows, static_cast<std::int32_t>(reader->vocabulary()));
    for (Tensor* words : {&b.inputs, &b.targets}) *words = words->view({-1, stories * StoryReader::kLength});
    return b;
  }
  StoryRows held_out(std::uint64_t seed, Index i) const {
    return reader->rows(held_out_stories(seed), static_cast<std::uint64_t>(i * kScored), kScored);
  }
  Batch batch(std::uint64_t seed, std::uint64_t step) const {
    return of(reader->rows(training_stories(seed), step * static_cast<std::uint64_t>(kStoryBatch), kStoryBatch));
  }
};

// The model's most likely token at each place. A language model reads the right tokens before the place (teacher
// forcing), so an answer is right if greedy decoding would write it.
Tensor predicted(const GPT& model, const Batch& b, bool masked) {
  const Tensor next = likeliest(model, b.inputs);  // [rows, T]
  if (masked) return next;
  Tensor shifted = Tensor::zeros(next.shape(), DType::int32);
  shifted.slice(1, 1, next.dim(1)).copy_(next.slice(1, 0, next.dim(1) - 1));
  return shifted;
}

RaceScore score_stories(const GPT& model, const WordBatches& stories, std::uint64_t seed, Index batches) {
  const NoTape no_tape;
  AnswerCount count;
  double loss = 0, counted = 0;
  for (Index i = 0; i < limited(batches, kStoryHeldOut); ++i) {
    const StoryRows rows = stories.held_out(seed, i);
    const Batch b = stories.of(rows);
    loss += model.loss(b.inputs, b.targets).item() * static_cast<double>(b.counted);
    counted += static_cast<double>(b.counted);
    count.add(rows, predicted(model, b, stories.masked).view(rows.tokens.shape()));
  }
  return {loss / counted, count.share(), count.shares()};
}

// Reads a million characters of stories to collect their words; made once for all tasks.
std::shared_ptr<const StoryReader> story_reader() {
  static const auto reader = std::make_shared<const StoryReader>();
  return reader;
}

double floor_of(const WordBatches& stories, std::uint64_t seed) {
  double nats = 0, counted = 0;
  for (Index i = 0; i < kStoryHeldOut; ++i) {
    const StoryRows rows = stories.held_out(seed, i);
    nats += rows.nats;
    counted += static_cast<double>(next_words(rows).counted);
  }
  return nats / counted;
}

std::shared_ptr<RaceTask> story_task(const std::string& name, const std::string& about, std::uint64_t seed, bool masked,
                                     Index stories_per_row = 1) {
  const WordBatches stories{story_reader(), masked, stories_per_row};
  GPTOptions shape = model_options(stories.vocabulary(), stories_per_row * StoryReader::kLength);
  shape.causal = !masked, shape.blocks.attention.rope = true;
  return std::make_shared<RaceTask>(
      RaceTask{.name = name,
               .about = about,
               .steps = masked ? kMaskedSteps : kStorySteps,  // only answers have targets, so a step teaches less
               .model = shape,
               .tokens = kStoryBatch * StoryReader::kLength,
               .distances = true,
               .training = stories,
               .score = [stories, seed](const GPT& model,
                                        Index batches) { return score_stories(model, stories, seed, batches); },
               .floor = masked ? std::nullopt : std::optional(floor_of(stories, seed))});
}

// A story has up to 38 tokens. Features of size 8 are too few to distinguish all.
std::shared_ptr<RaceTask> rank_task(std::uint64_t seed) {
  const auto task =
      story_task("rank", "stories with small heads; linear attention also with heads 4 times as large", seed, false);
  task->model.blocks.attention.key_size = 8;
  return task;
}

RaceEntry entry(const std::shared_ptr<const RaceTask>& task, const std::string& label, const std::string& mechanism,
                std::uint64_t seed, Index qk_times = 1, Index v_times = 1, const MechanismOptions& own = {}) {
  RaceEntry e{task, label, mechanism, task->model};
  e.model.blocks.attention.key_size *= qk_times;
  e.model.blocks.attention.value_size *= v_times;
  e.options = own;
  e.options.causal = e.model.causal, e.options.context = e.model.context, e.options.seed = seed;
  e.options.heads = e.model.blocks.attention.heads, e.options.head_size = e.model.blocks.attention.key_size;
  e.options.value_size = e.model.blocks.attention.value_size;
  e.options.layers = e.model.blocks.layers;
  if (own.window == 0) e.options.window = std::max<Index>(4, e.model.context / 8);
  return e;
}

}  // namespace

GPT race_model(const GPTOptions& options, std::uint64_t seed, const MechanismFactory& mechanism) {
  Rng own;
  GPT model(options, own, [mechanism, seed](Index layer, Rng&) {
    Rng of_layer(seed, kMechanisms + static_cast<std::uint64_t>(layer));
    return mechanism(layer, of_layer);
  });
  model.init_weights([&](const std::string& name) -> Rng& { return own = Rng(seed, kWeights + number_of(name)); });
  return model;
}

const std::vector<std::string>& race_task_names() {
  static const std::vector<std::string> names = {"copy", "recall",    "tracking", "stories",
                                                 "rank", "linformer", "lengths"};
  return names;
}

bool takes_mechanisms(const std::string& task) { return task != "rank" && task != "linformer"; }

// The task of this name among those that take mechanisms.
static std::shared_ptr<RaceTask> task_of_mechanisms(const std::string& task, std::uint64_t seed) {
  if (task == "copy") return copy_task(seed);
  if (task == "recall") return synthetic_task<RecallBatches>(task, "the values of 16 keys, in another order", seed);
  if (task == "tracking")
    return synthetic_task<SwapBatches>(task, "the thing at the first of 5 places after each of 32 swaps", seed);
  require(task == "stories", "race: the task is '", task, "'; it must be ", detail::joined(race_task_names()));
  return story_task(task, "a language model; answers by their distance from the fact", seed, false);
}

static bool has_rate(const std::string& mechanism) {
  const std::vector<MechanismOption>& all = mechanism_options();
  return std::any_of(all.begin(), all.end(), [&](const auto& o) { return o.name == "max-rate" && o.of(mechanism); });
}

std::vector<RaceEntry> race_entries(const std::string& task, const std::vector<std::string>& mechanisms,
                                    std::uint64_t seed, const MechanismOptions& own) {
  if (task == "rank") {
    const auto t = rank_task(seed);
    return {entry(t, "softmax", "softmax", seed), entry(t, "linear", "linear", seed),
            entry(t, "linear, 4x q k", "linear", seed, 4), entry(t, "linear, 4x all", "linear", seed, 4, 4)};
  }
  std::vector<RaceEntry> entries;
  if (task == "linformer") {
    const auto t = story_task(task, "encoders that fill in the masked answers of stories", seed, true);
    entries.push_back(entry(t, "softmax", "softmax", seed));
    entries.push_back(entry(t, "efficient", "efficient", seed));
    for (const Index m : {4, 8, 16, 32})
      entries.push_back(entry(t, "linformer " + std::to_string(m), "linformer", seed, 1, 1, {.rows = m}));
    return entries;
  }
  if (task == "lengths") {
    for (const Index stories : {1, 2, 4, 8}) {
      const std::string n = std::to_string(stories * StoryReader::kLength);
      const auto t =
          story_task("lengths-" + n, "encoders as in linformer, with rows of " + n + " words", seed, true, stories);
      entries.push_back(entry(t, "softmax", "softmax", seed));
      entries.push_back(entry(t, "linformer 16", "linformer", seed, 1, 1, {.rows = 16}));
    }
    return entries;
  }
  const auto t = task_of_mechanisms(task, seed);
  MechanismOptions fast = own;
  fast.max_rate = 2;
  for (const std::string& name : mechanisms) {
    entries.push_back(entry(t, name, name, seed, 1, 1, own));
    if (task == "tracking" && has_rate(name) && own.max_rate == 0)
      entries.push_back(entry(t, name + ", rate 2", name, seed, 1, 1, fast));
  }
  return entries;
}

}  // namespace heed::examples

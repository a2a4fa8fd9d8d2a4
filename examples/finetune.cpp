// Fine-tunes a published model, or one that train_lm trained, on texts or conversations.
//
//   finetune --model SmolLM2.gguf --data poems.txt                       a LoRA adapter
//   finetune --model SmolLM2.gguf --data answers.jsonl --epochs 3        of prompts with completions, or conversations
//   finetune --model model/ --data poems.txt --full --dtype bf16         all weights
//   finetune --resume                                                    continues a stopped run, to the same bits
#include <cmath>
#include <heed/core/names.hpp>
#include <heed/heed.hpp>
#include <heed/plot/plot.hpp>

#include "examples/support/memory_need.hpp"
#include "examples/support/model_weights.hpp"
#include "examples/support/program.hpp"
#include "examples/support/run_flags.hpp"
#include "examples/support/run_report.hpp"
#include "examples/support/settings.hpp"

namespace {

using namespace heed;
using namespace heed::examples;

struct Settings {
  std::string model;
  std::vector<std::string> data;
  std::string chat_template, loss_on = "answers", schedule = "cosine", long_examples = "cut", dtype = "f32",
                             targets = "all", base_dtype = "f32";
  bool full = false, rslora = false, recompute = false;
  Index rank = 16, freeze = 0, context = 512, batch = 4, epochs = 1, steps = 0, eval_every = 0;
  double alpha = 32, lora_dropout = 0, lr = 2e-4, warmup = 0.03, weight_decay = 0, layer_decay = 1, held_out = 0.05;
  std::uint64_t seed = 1;

  void fields(SettingFields& f) {
    f.order({"model", "data"});
    f("model", model, Kind::start,
      "Folder with config.json and safetensors, GGUF file, or checkpoint to begin with [that of --resume]",
      model_name());
    f("data", data, Kind::data,
      "Texts, or JSONL with text, with prompt and completion, or with messages [those of --resume]", text_name("FILE"));
    f("chat-template", chat_template, Kind::data, "Template for messages [that of the model]",
      one_of(ChatTemplate::names()));
    f("loss-on", loss_on, Kind::data, "Tokens that the loss counts: answers (completions), or all [answers]",
      one_of({"answers", "all"}));
    f("long-examples", long_examples, Kind::data, "Examples longer than the context: cut, or leave-out [cut]",
      one_of({"cut", "leave-out"}));
    f("held-out", held_out, Kind::data, "Share of the examples for validation [0.05]", number(0, 0.9));
    f("context", context, Kind::start, "Tokens per row; several examples share a row [512]", whole(1));
    f.group("Trained weights");
    f("full", full, Kind::start, "Train all weights instead of an adapter");
    f("rank", rank, Kind::start, "Rank of the LoRA adapter [16]", whole(1));
    f("alpha", alpha, Kind::start, "The adapter is scaled by alpha / rank [32]", positive_number());
    f("rslora", rslora, Kind::start, "Scale by alpha / sqrt(rank) instead");
    f("lora-dropout", lora_dropout, Kind::start, "Share of the adapter's inputs that are dropped [0]", number(0, 0.99));
    f("targets", targets, Kind::start, "Layers with an adapter: all, or names such as q_proj,v_proj [all]",
      anything("NAMES"));
    f("base-dtype", base_dtype, Kind::start,
      "Type of the frozen weights under an adapter; stored: quantized weights as in the file [f32]", weights_type());
    f("freeze", freeze, Kind::start, "With --full: freeze the embeddings and the first N blocks [0]", whole(0));
    f.group("Training");
    f("epochs", epochs, Kind::training, "Passes over the examples [1]", whole(1));
    f("steps", steps, Kind::run, "Optimizer steps, instead of --epochs [0: by epochs]", whole(0));
    f("batch", batch, Kind::run, "Rows per step [4]", whole(1));
    f("lr", lr, Kind::run, "Peak learning rate [2e-4]", number(0));
    f("schedule", schedule, Kind::training, "Schedule of the rate [cosine]", one_of({"constant", "linear", "cosine"}));
    f("warmup", warmup, Kind::training, "Share of the steps in which the rate rises [0.03]", number(0, 1));
    f("weight-decay", weight_decay, Kind::training, "Weight decay [0]", number(0));
    f("layer-decay", layer_decay, Kind::training, "With --full: the rate of a block relative to the next one [1]",
      number(1e-3, 1));
    f("eval-every", eval_every, Kind::run, "Steps between evaluations [0: ten in all]", whole(0));
    f("dtype", dtype, Kind::run, "Type of the factors of products [f32]", dtype_name());
    f("recompute", recompute, Kind::training, "Keep less for backward, and compute it again: less memory, more time");
    f("seed", seed, Kind::start, "Seed of the adapter, of the order of examples and of dropout [1]", seed_number());
  }
};

// ---- Data ----

// How conversations become tokens, by the chat template of the model.
EncodeChat chat_encoder(const Pretrained& p, const Settings& s) {
  const auto* tokenizer = p.lm.tokenizer.as<JsonTokenizer>();
  if (tokenizer == nullptr || (s.chat_template.empty() && p.card.chat_template.empty())) return {};
  const ChatTemplate chat =
      s.chat_template.empty() ? ChatTemplate::of_text(p.card.chat_template) : ChatTemplate::named(s.chat_template);
  return [chat, tokenizer = *tokenizer](const std::vector<ChatMessage>& messages) {
    ChatTokens tokens = chat.tokens(tokenizer, messages);
    return MarkedTokens{std::move(tokens.ids), std::move(tokens.answer)};
  };
}

struct Data {
  Samples training, validation;
  std::string description;
};

Samples packed(const Samples& samples, const Settings& s) {
  return PackedSamples(samples, {.context = s.context, .seed = s.seed});
}

Data data_of(const Pretrained& p, const Settings& s) {
  std::set<std::string> ignored;
  std::vector<std::filesystem::path> files(s.data.begin(), s.data.end());
  TokenExampleOptions options{.context = s.context,
                              .begin = p.lm.tokenizer.special("<s>"),
                              .all_tokens = s.loss_on == "all",
                              .leave_out = s.long_examples == "leave-out",
                              .encode_chat = chat_encoder(p, s)};
  if (!p.end_tokens.empty()) options.end = p.end_tokens.front();
  const TokenExamples examples(read_examples(files, {.ignored = &ignored}), p.lm.tokenizer, options);
  const ExampleCounts counts = examples.counts();
  std::string text = std::to_string(counts.examples) + (counts.examples == 1 ? " example, " : " examples, ") +
                     std::to_string(counts.tokens) + " tokens, " + std::to_string(counts.trained) + " in the loss";
  if (const std::string more = counts.text(s.context); !more.empty()) text += "\n" + more;
  if (!ignored.empty()) text += "\nfields that were not read: " + detail::joined(ignored);
  auto [training, validation] = split(examples, s.held_out, s.seed);
  return {packed(training, s), validation.size() > 0 ? packed(validation, s) : validation, text};
}

// ---- Model ----

// Chooses the trained weights: an adapter, or all above the frozen ones.
ParameterGroups trained_groups(Pretrained& p, const Settings& s, Rng& rng) {
  GPT& model = p.lm.model;
  if (!s.full) {
    const PeftNames names = peft_names(p);
    add_lora(model,
             {.rank = s.rank,
              .alpha = s.alpha,
              .rslora = s.rslora,
              .dropout = s.lora_dropout,
              .targets = s.targets,
              .whole = names.fan_in_fan_out},  // GPT-2 has one module for queries, keys and values
             rng);
    check_peft(model, names);
  }
  if (s.full && s.freeze > 0) freeze_lower(model, s.freeze);
  const std::vector<ParameterGroup> groups = decay_groups(trainable_parameters(model), s.weight_decay);
  return s.full && s.layer_decay < 1 ? layerwise_groups(groups, model, s.layer_decay) : groups;
}

Tensor loss_of(const GPT& model, const Batch& b) {
  return model.loss(b.inputs, b.targets, {.documents = b["documents"]});
}

// ---- Run ----

Index steps_of(const Settings& s, const SampleBatches& batches) {
  return s.steps > 0 ? s.steps : s.epochs * batches.size();
}

RunOptions run_options(RunOptions o, Settings s, const Pretrained& p, Index steps) {
  o.steps = steps;
  o.seed = s.seed;
  o.precision = dtype_named(s.dtype);
  o.evaluation.every = s.eval_every > 0 ? s.eval_every : std::max<Index>(1, steps / 10);
  o.checkpoint.trainable_only = !s.full;
  if (s.full)
    o.checkpoint.texts = pretrained_texts(p);
  else
    o.checkpoint.texts = {{"base", s.model}};
  o.checkpoint.texts.insert({"settings", SettingFields(s).json()});
  for (const std::string& file : s.data) o.inputs.emplace_back(file);
  return o;
}

// The settings of a run that continues from a checkpoint, with the flags that may change.
Settings resumed_settings(const Checkpoint& old, const CommandLine& line, Settings given, bool other_data) {
  const StoredSettings stored(old);
  require(stored.has("held-out") && stored.has("rank"), old.source, " is not a checkpoint of finetune");
  Settings s;
  SettingFields(s).read(stored);
  print_changed(SettingFields(s).resume(line, SettingFields(given), other_data));
  check_stored_file(line, "--model", s.model, old.source);
  for (const std::string& file : s.data) check_stored_file(line, "--data", file, old.source);
  return s;
}

void check_given(const Settings& s) {
  if (s.model.empty()) throw UsageError("--model is required");
  if (s.data.empty()) throw UsageError("--data is required");
  require(!s.full || s.base_dtype == "f32", "--base-dtype is ", s.base_dtype,
          ", but --full trains all weights, which must be f32; leave --base-dtype out, or train an adapter");
}

// Writes the result: an adapter as PEFT's folder, or the whole model.
void save_result(const std::filesystem::path& out, Pretrained& p, const Settings& s) {
  if (s.full)
    save_pretrained(out, p);
  else
    save_peft(out, p.lm.model, peft_names(p));
  std::fprintf(stderr, "%s: %s\n", s.full ? "model" : "adapter", printable(out.native()).c_str());
}

void print_start(const Pretrained& p, const Data& data, const TrainingMemory& memory, Index steps) {
  const auto millions = [](Index n) { return static_cast<double>(n) / 1e6; };
  Index trained = 0;
  GPT& model = const_cast<GPT&>(p.lm.model);
  for (const NamedParameter& q : trainable_parameters(model)) trained += q.parameter->numel();
  std::fprintf(
      stderr, "%s\n%s: %.1fM parameters, of which %.2fM are trained; about %.0f MiB; %s, %d threads; %lld steps\n",
      data.description.c_str(), p.family.empty() ? "model" : p.family.c_str(), millions(parameter_count(model)),
      millions(trained), memory.process / (1 << 20), arch(), threads(), static_cast<long long>(steps));
}

// The memory of a step on the batch `first`, and of an evaluation on `held_out`, if it has inputs.
TrainingMemory memory_of(GPT& model, const Optimizer& optimizer, const RunOptions& options, const Batch& first,
                         const Batch& held_out) {
  return predict_training_memory(
      trainable_parameters(model), optimizer, options, [&] { return loss_of(model, first); },
      [&] {
        if (held_out.inputs.defined()) loss_of(model, held_out);
      });
}

int train(const RunFlags& flags, Settings s, const std::string& out, const CommandLine& line) {
  set_threads(flags.threads);
  check_plot(flags.plot);
  const Start start = open_start(flags, "", true);
  if (start.resumed) s = resumed_settings(*start.resumed, line, s, flags.other_data);
  check_given(s);
  Pretrained p = load_pretrained(s.model, weights_named(s.base_dtype));
  print_quantized(p.quantized);
  require(p.config.options.causal, s.model, " is a masked model; finetune trains models that continue texts");
  s.context = std::min(s.context, p.config.options.context);
  const Data data = data_of(p, s);
  Rng rng(s.seed);
  GPT& model = p.lm.model;
  model.transformer.recomputes = s.recompute;
  AdamW optimizer(trained_groups(p, s, rng), {.lr = s.lr, .betas = {0.9, 0.999}});
  const SampleBatches batches(data.training, {.rows = s.batch});
  const Index steps = steps_of(s, batches);
  Schedule schedule(s.schedule, {.lr = s.lr,
                                 .min_lr = s.lr / 10,
                                 .warmup = static_cast<Index>(s.warmup * static_cast<double>(steps)),
                                 .steps = std::max<Index>(steps, 1)});
  RunOptions options = run_options(flags.options(start), s, p, steps);
  EvaluationSet validation;
  if (data.validation.size() > 0) validation = SampleEvaluation(data.validation, {.rows = s.batch});
  const TrainingMemory memory = memory_of(model, optimizer, options, batches.batch(s.seed, 0),
                                          validation.size() > 0 ? validation.batch(0) : Batch());
  check_memory("fine-tuning", memory.process);
  print_start(p, data, memory, steps);
  RunProfile profile(flags.profile);
  options.output.profile = profile.get();
  const RunResult result =
      run(model, optimizer, schedule, batches, validation, options, [&](const Batch& b) { return loss_of(model, b); });
  profile.report();
  if (!flags.plot.empty() && result.steps > 0) plot_losses(flags.plot, result);
  if (result.interrupted) {
    print_stopped(result, steps, flags.resume_command(line, {"--out"}));
    return 130;
  }
  if (result.validation_loss) std::fprintf(stderr, "validation loss %.4f\n", *result.validation_loss);
  save_result(out, p, s);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  CommandLine line("Fine-tunes a published model, or one that train_lm trained", "finetune");
  Settings settings;
  RunFlags flags{"finetune.h5"};
  std::string out = "adapter";
  SettingFields(settings).add_flags(line);
  line.add("--out", out, "Result: the folder of an adapter, or with --full a folder, FILE.gguf or FILE.h5 [adapter]",
           new_model_name());
  flags.add_to(line, "losses");
  return run_program(line, argc, argv, [&] { return train(flags, settings, out, line); });
}

// Declares the settings and flags of train_lm.
#include <heed/optim/optimizers/optimizers.hpp>
#include <heed/optim/optimizers/schedule.hpp>

#include "examples/support/lm_settings.hpp"
#include "examples/support/mechanism_flags.hpp"

namespace heed::examples {
namespace {

constexpr const char* kOutput = "Evaluation, checkpoints, output";

}  // namespace

void LmSettings::data_fields(SettingFields& f) {
  f.group("Data");
  f("data", data, Kind::data, "Text files, folders, - for standard input, or one token file [the built-in stories]",
    text_name("PATH..."));
  text.reading_fields(f);
  f("tokenizer", tokenizer, Kind::model,
    "byte, char (characters of the text), or a SentencePiece FILE.model [char; a token file contains its own]",
    tokenizer_name());
  text.unicode_field(f);
}

void LmSettings::model_fields(SettingFields& f) {
  f.group("Model");
  f("preset", preset, Kind::start,
    "Sizes and rates: nano (4 layers, 4 heads, width 128, context 64, batch 12), baby (6, 6, 384, 256, 16), "
    "gpt2 (12, 12, 768, 1024, 4; GPT-2's architecture) [nano]",
    one_of({"nano", "baby", "gpt2"}));
  f("recipe", recipe, Kind::start,
    "plain; or fast, which reaches a loss in less time (docs/training.md) by the defaults marked (fast: ...), "
    "which flags override [plain]",
    one_of({"plain", "fast"}));
  f("model", model, Kind::model, "lm continues a text; mlm fills in hidden tokens, as in BERT [lm]",
    one_of({"lm", "mlm"}));
  const std::vector<std::string>& mechanisms = all_mechanism_names();
  f("attention", attention, Kind::model,
    "Attention mechanism: " + choice(mechanisms, ", ") +
        " (docs/attention.md); linformer with mlm only, forgetting with lm only [softmax]",
    one_of(mechanisms, "NAME"));
  mechanism_fields(f, mechanism, mechanisms, [this](const MechanismOption& o, bool has_value) {
    return (has_value && o.of(attention)) || o.name == "feature-map";  // always in older checkpoints
  });
  f.options(gpt, {{"layers", {.defaults = "by preset", .takes = whole(1)}},
                  {"heads", {.defaults = "by preset"}},
                  {"width", {.defaults = "by preset"}},
                  {"context",
                   {.defaults = "by preset; stories 144; of the model of --init, at most 512 if it is a "
                                "published one",
                    .kind = Kind::start}},
                  {"positions", {.defaults = "learned; rope with mlm; fast: rope"}},
                  {"norm", {.defaults = "layer; fast: rms"}},
                  {"activation", {.defaults = "gelu; gelu-tanh in gpt2; fast: relu-squared"}},
                  {"bias", {.defaults = "false; true in gpt2"}},
                  {"qk_norm", {.defaults = "false; fast: true", .always_stored = true}},
                  {"zero_init_residual", {.defaults = "false; fast: true", .kind = Kind::start, .always_stored = true}},
                  {"dropout", {.defaults = "0; 0.2 in baby", .kind = Kind::training}}});
}

void LmSettings::training_fields(SettingFields& f) {
  const Takes share = number(0, 1), rate = number(0);
  f.group("Training");
  f("steps", steps, Kind::run,
    "Optimizer steps [nano 2000, baby 5000, gpt2 10000; stories 3000; fast: 270, 1500, 5000]", whole(0));
  f("batch", batch, Kind::run, "Rows per batch [by preset; stories 24; fast: 32 in baby]", whole(1));
  f("accumulate", accumulate, Kind::run, "Batches per shard [1]", whole(1));
  f("shards", shards, Kind::run, "Parts of a step; their gradients are summed in a tree [1]", whole(1, kMaxShards));
  f("communication-dtype", communication_dtype, Kind::run,
    "Type of numbers sent between ranks; bf16: half the bytes [f32]", dtype_name());
  f("lr", lr, Kind::run,
    "Peak learning rate [nano 3e-3, baby 1e-3, gpt2 6e-4; stories 5e-3; fast: 6e-3, 4e-3, 2e-3; 2e-4 with --init of a "
    "published model]",
    rate);
  f("min-lr", min_lr, Kind::training, "Final learning rate [a tenth of lr; fast: 0]", rate);
  f("warmup", warmup, Kind::training,
    "Warm-up steps, in which the rate rises from 0 [nano 100, baby 100, gpt2 500; fast: 0, 25, 500; at most a "
    "tenth of the steps]",
    whole(0));
  f("weight-decay", weight_decay, Kind::training, "Weight decay of matrices [0.1; fast: 0 in nano]", rate);
  f("beta1", beta1, Kind::training,
    "beta1 of optimizers that have it; momentum of SGD, RMSprop and Muon [0.9; fast: 0.95]", share);
  f("beta2", beta2, Kind::training, "beta2 of optimizers that have it [0.99; 0.95 in gpt2; fast: 0.95]", share);
  f("grad-clip", grad_clip, Kind::run, "Max norm of the gradient; 0: no clipping [1]", rate);
  f("optimizer", optimizer, Kind::start, "Optimizer; muon uses AdamW for embeddings and vectors [adamw; fast: muon]",
    one_of(optimizer_names()));
  f("schedule", schedule, Kind::training, "Schedule of the learning rate after the warm-up [cosine; fast: linear]",
    one_of({"constant", "linear", "cosine", "inverse-sqrt", "step", "one-cycle", "plateau"}));
  f("seed", seed, Kind::start, "Seed of initial weights, batches, dropout and the sample [1]", seed_number());
  f("dtype", dtype, Kind::run, "Type of the operands of matrix products [f32; fast: bf16 if the machine supports it]",
    dtype_name());
  f.group(kOutput);
  f("val-fraction", val_fraction, Kind::data, "Share of --data for validation, from its end [0.1]", number(0, 0.9));
  f("eval-every", eval_every, Kind::run, "Steps between evaluations; 0: only at the end [250]", whole(0));
  f("eval-batches", eval_batches, Kind::run,
    "Batches per evaluation; 0: the whole validation split, as in the last evaluation [20]", whole(0));
}

void LmSettings::fields(SettingFields& f) {
  std::vector<std::string> names = {
      "data",    "tokenizer", "preset", "recipe",  "line-ends", "invalid-utf8", "unicode", "model",
      "layers",  "heads",     "width",  "context", "batch",     "accumulate",   "shards",  "communication-dtype",
      "dropout", "attention"};
  for (const MechanismOption& o : mechanism_options()) names.push_back(o.name);
  names.insert(names.end(), {"norm", "activation", "positions", "bias"});
  f.order(names);
  data_fields(f), model_fields(f), training_fields(f);
}

LmFlags::LmFlags() : line_("Trains a small language model on text files, or on the built-in stories", "train_lm") {
  CommandLine& line = line_;
  SettingFields(given_).add_flags(line);
  line.group(kOutput);
  run_.add_to(line, "losses");
  line.add("--sample", run_.sample, "Tokens to generate at the end; mlm: tokens of held-out text to fill in [300]",
           whole(0));
  line.add("--prompt", run_.prompt,
           "Text that the sample continues [a line feed; if the tokenizer has none, a space or the first token]; mlm: "
           "a text to fill in, such as 'Where is the m[MASK]p?'",
           anything("TEXT"));
  line.add_sampling(run_.sampling);
}

}  // namespace heed::examples

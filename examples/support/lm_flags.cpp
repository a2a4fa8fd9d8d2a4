// Declares the flags of train_lm.
#include <heed/optim/optimizers/optimizers.hpp>
#include <heed/optim/optimizers/schedule.hpp>

#include "examples/support/lm_settings.hpp"
#include "examples/support/mechanism_flags.hpp"

namespace heed::examples {
namespace {

template <class T>
std::vector<std::string> names(const std::map<std::string, T>& map) {
  std::vector<std::string> list;
  for (const auto& [name, value] : map) list.push_back(name);
  return list;
}

}  // namespace

LmFlags::LmFlags() : line_("Trains a small language model on text files, or on the built-in stories", "train_lm") {
  CommandLine& line = line_;
  LmSettings& s = given_;
  const Takes share = number(0, 1), rate = number(0);
  line.group("Data");
  line.add("--data", s.data, "Text files, folders, - for standard input, or one token file [the built-in stories]",
           text_name("PATH..."));
  add_reading_flags(line, s.text);
  line.add("--tokenizer", s.tokenizer,
           "byte, char (characters of the text), or a SentencePiece FILE.model [char; a token file contains its own]",
           tokenizer_name());
  add_unicode_flag(line, s.text);
  line.add("--val-fraction", s.val_fraction, "Share of --data for validation, from its end [0.1]", number(0, 0.9));
  line.group("Model");
  line.add("--preset", s.preset,
           "Sizes and rates: nano (4 layers, 4 heads, width 128, context 64, batch 12), baby (6, 6, 384, 256, 16), "
           "gpt2 (12, 12, 768, 1024, 4; GPT-2's architecture) [nano]",
           one_of({"nano", "baby", "gpt2"}));
  line.add("--recipe", s.recipe,
           "plain; or fast, which reaches a loss in less time (docs/training.md) by the defaults marked (fast: ...), "
           "which flags override [plain]",
           one_of({"plain", "fast"}));
  line.add("--model", s.model, "lm continues a text; mlm fills in hidden tokens, as in BERT [lm]",
           one_of({"lm", "mlm"}));
  line.add("--layers", s.layers, "Blocks [by preset]", whole(1));
  line.add("--heads", s.heads, "Attention heads; must divide the width [by preset]", whole(1));
  line.add("--width", s.width, "Size of a token's vector [by preset]", whole(1));
  line.add("--context", s.context, "Context length in tokens [by preset; stories 144]", whole(1));
  const std::vector<std::string>& mechanisms = all_mechanism_names();
  line.add("--attention", s.attention,
           "Attention mechanism: " + choice(mechanisms, ", ") +
               " (docs/attention.md); linformer with mlm only, forgetting with "
               "lm only [softmax]",
           one_of(mechanisms, "NAME"));
  add_mechanism_flags(line, s.mechanism, mechanisms);
  line.add("--norm", s.norm, "Normalisation [layer; fast: rms]", one_of(names(norm_kinds())));
  line.add("--activation", s.activation,
           "Activation of the feed-forward part [gelu; gelu-tanh in gpt2; fast: relu-squared]",
           one_of(names(feed_forward_kinds())));
  line.add("--positions", s.positions, "Encoding of positions [learned; rope with mlm; fast: rope]",
           one_of(names(position_kinds())));
  line.add("--bias", s.bias, "Biases in the linear layers [false; true in gpt2]", one_of({"true", "false"}));
  line.add("--qk-norm", s.qk_norm, "RMSNorm of each head's queries and keys [false; fast: true]",
           one_of({"true", "false"}));
  line.add("--zero-init-residual", s.zero_init_residual,
           "Initialize weights before residual sums to 0 [false; fast: true]", one_of({"true", "false"}));
  line.add("--logit-cap", s.logit_cap, "Soft cap C of the logits: C tanh(logits / C) [none]", number(1e-3));
  line.add("--dropout", s.dropout, "Share of activations dropped in training [0; 0.2 in baby]", number(0, 0.99));
  line.group("Training");
  line.add("--steps", s.steps,
           "Optimizer steps [nano 2000, baby 5000, gpt2 10000; stories 3000; fast: 270, 1500, 5000]", whole(0));
  line.add("--batch", s.batch, "Rows per batch [by preset; stories 24; fast: 32 in baby]", whole(1));
  line.add("--accumulate", s.accumulate, "Batches per shard [1]", whole(1));
  line.add("--shards", s.shards, "Parts of a step; their gradients are summed in a tree [1]", whole(1, kMaxShards));
  line.add("--communication-dtype", s.communication_dtype,
           "Type of numbers sent between ranks; bf16: half the bytes [f32]", dtype_name());
  line.add("--lr", s.lr, "Peak learning rate [nano 3e-3, baby 1e-3, gpt2 6e-4; stories 5e-3; fast: 6e-3, 4e-3, 2e-3]",
           rate);
  line.add("--min-lr", s.min_lr, "Final learning rate [a tenth of lr; fast: 0]", rate);
  line.add("--warmup", s.warmup,
           "Warm-up steps, in which the rate rises from 0 [nano 100, baby 100, gpt2 500; fast: 0, 25, 500; at most a "
           "tenth of the steps]",
           whole(0));
  line.add("--schedule", s.schedule, "Schedule of the learning rate after the warm-up [cosine; fast: linear]",
           one_of({"constant", "linear", "cosine", "inverse-sqrt", "step", "one-cycle", "plateau"}));
  line.add("--optimizer", s.optimizer, "Optimizer; muon uses AdamW for embeddings and vectors [adamw; fast: muon]",
           one_of(optimizer_names()));
  line.add("--weight-decay", s.weight_decay, "Weight decay of matrices [0.1; fast: 0 in nano]", rate);
  line.add("--beta1", s.beta1, "beta1 of optimizers that have it; momentum of SGD, RMSprop and Muon [0.9; fast: 0.95]",
           share);
  line.add("--beta2", s.beta2, "beta2 of optimizers that have it [0.99; 0.95 in gpt2; fast: 0.95]", share);
  line.add("--grad-clip", s.grad_clip, "Max norm of the gradient; 0: no clipping [1]", rate);
  line.add("--dtype", s.dtype, "Type of the operands of matrix products [f32; fast: bf16 if the machine supports it]",
           dtype_name());
  line.add_seed(s.seed, "Seed of initial weights, batches, dropout and the sample [1]");
  line.add_threads(run_.threads);
  line.group("Evaluation, checkpoints, output");
  line.add("--eval-every", s.eval_every, "Steps between evaluations; 0: only at the end [250]", whole(0));
  line.add("--eval-batches", s.eval_batches,
           "Batches per evaluation; 0: the whole validation split, as in the last evaluation [20]", whole(0));
  line.add("--checkpoint", run_.checkpoint, "Checkpoint file, always written at the end [lm.h5]",
           file_name("FILE", FileRole::checkpoint));
  line.add("--checkpoint-every", run_.checkpoint_every, "Steps between checkpoints; 0: only at the end [0]", whole(0));
  add_start_flags(line, run_.start);
  line.add("--log", run_.log, "One JSON object per step", file_name("FILE.jsonl", FileRole::log));
  line.add("--plot", run_.plot, "Picture of the losses, .svg or .png", file_name("FILE.svg|png", FileRole::output));
  line.add("--sample", run_.sample, "Tokens to generate at the end; mlm: tokens of held-out text to fill in [300]",
           whole(0));
  line.add("--prompt", run_.prompt,
           "Text that the sample continues [a line feed; if the tokenizer has none, a space or the first token]; mlm: "
           "a text to fill in, such as 'Where is the m[MASK]p?'",
           anything("TEXT"));
  line.add_sampling(run_.sampling);
  line.add_find_nan(run_.find_nan);
  add_profile_flags(line, run_.profile);
}

}  // namespace heed::examples

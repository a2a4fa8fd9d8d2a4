// Writes text with a language model, token by token: one that train_lm trained, or a published one.
#include <heed/core/parallel.hpp>
#include <heed/io/pretrained.hpp>

#include "examples/support/model_weights.hpp"
#include "examples/support/program.hpp"

int main(int argc, char** argv) {
  using namespace heed;
  using namespace heed::examples;
  CommandLine line("Continues a prompt with a model that train_lm trained, or with a published model", "generate");
  std::string checkpoint = "lm.h5", model;
  std::vector<std::string> prompts;
  TextOptions options{.count = 300, .sampling = {.temperature = 0.8}};
  int thread_count = 0;
  std::string dtype = "f32";
  line.add("--checkpoint", checkpoint, "File that train_lm wrote [lm.h5]", file_name("FILE", FileRole::input));
  line.add("--model", model,
           "Folder with config.json and safetensors, GGUF file, or checkpoint, in place of --checkpoint", model_name(),
           {.excludes = "--checkpoint"});
  line.add("--prompt", prompts,
           "Text to continue; may be given several times: the texts are then printed when all are complete "
           "[a line feed; if the tokenizer has none, a space or the first token]",
           {.shown = "TEXT", .one_each = true});
  line.add("--tokens", options.count, "Max tokens to generate [300]", whole(0));
  line.add("--stop", options.stop, "End a text after this string; may be given several times",
           {.shown = "TEXT", .one_each = true});
  line.add_sampling(options.sampling);
  line.add("--dtype", dtype,
           "Type of the weights: f32, bf16, q8_0, or stored, which keeps quantized weights of a GGUF file [f32]",
           weights_type());
  line.add("--seed", options.seed, "Seed of the sample [1]", seed_number());
  line.add_threads(thread_count);
  return run_program(line, argc, argv, [&] {
    set_threads(thread_count);
    const Pretrained p = load_pretrained(model.empty() ? checkpoint : model, weights_named(dtype));
    print_quantized(p.quantized);
    const LanguageModel& lm = p.lm;
    options.stop_tokens = p.end_tokens;
    if (prompts.empty()) prompts = {""};
    const bool streams = prompts.size() == 1;
    if (streams) options.on_text = print_piece;
    for (const std::string& text : generate_text(lm, prompts, options)) print_text((streams ? "" : text) + "\n");
    return 0;
  });
}

// Writes text with a language model that train_lm trained, token by token.
#include <heed/core/parallel.hpp>
#include <heed/models/language_model.hpp>

#include "examples/support/program.hpp"

int main(int argc, char** argv) {
  using namespace heed;
  using namespace heed::examples;
  CommandLine line("Goes on from a prompt with a model that train_lm trained", "generate");
  std::string checkpoint = "lm.h5", prompt;
  Index tokens = 300;
  SamplingOptions sampling{.temperature = 0.8};
  std::uint64_t seed = 1;
  int thread_count = 0;
  line.add("--checkpoint", checkpoint, "File that train_lm wrote [lm.h5]", file_name("FILE"));
  line.add("--prompt", prompt,
           "What to go on from [a line feed; a space or the first token where the tokenizer has none]",
           anything("TEXT"));
  line.add("--tokens", tokens, "How many to write [300]", whole(0));
  line.add_sampling(sampling);
  line.add_seed(seed, "Of the sample [1]");
  line.add_threads(thread_count);
  return run_program(line, argc, argv, [&] {
    set_threads(thread_count);
    const LanguageModel lm = load_language_model(checkpoint);
    Rng rng(seed, 2);
    generate_text(lm, prompt, tokens, sampling, rng, print_piece);
    std::puts("");
    return 0;
  });
}

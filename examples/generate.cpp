// Writes text with a language model that train_lm trained, token by token.
#include <heed/core/parallel.hpp>

#include "examples/support/flag_checks.hpp"
#include "examples/support/language_model.hpp"
#include "examples/support/program.hpp"

int main(int argc, char** argv) {
  using namespace heed;
  CLI::App app("Goes on from a prompt with a model that train_lm trained", "generate");
  std::string checkpoint = "lm.h5", prompt;
  Index tokens = 300;
  SamplingOptions sampling{.temperature = 0.8};
  std::uint64_t seed = 1;
  int thread_count = 0;
  app.add_option("--checkpoint", checkpoint, "File that train_lm wrote [lm.h5]")->type_name("FILE");
  app.add_option("--prompt", prompt, "What to go on from [a line feed]")->type_name("TEXT");
  app.add_option("--tokens", tokens, "How many to write [300]")->type_name("N")->check(examples::whole(0));
  examples::add_sampling_flags(app, sampling);
  app.add_option("--seed", seed, "Of the sample [1]")
      ->type_name("N")
      ->check(examples::whole(0, std::numeric_limits<Index>::max()));
  app.add_option("--threads", thread_count, "0: all that the process may use [0]")
      ->type_name("N")
      ->check(examples::whole(0, 1024));
  return examples::run_program(app, argc, argv, [&] {
    set_threads(thread_count);
    const examples::LanguageModel lm = examples::load_language_model(checkpoint);
    examples::stream_sample(lm.model, lm.tokenizer, prompt, tokens, sampling, seed);
    return 0;
  });
}

// Writes text with a language model that train_lm trained, token by token.
#include <CLI/CLI.hpp>
#include <heed/core/parallel.hpp>

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
  app.add_option("--tokens", tokens, "How many to write [300]")->check(CLI::Range(Index{0}, Index{1} << 40));
  app.add_option("--temperature", sampling.temperature, "0: always the likeliest token [0.8]")
      ->check(CLI::NonNegativeNumber);
  app.add_option("--top-k", sampling.top_k, "Sample from the k likeliest; 0: from all [0]")
      ->check(CLI::Range(Index{0}, Index{1} << 40));
  app.add_option("--top-p", sampling.top_p, "Sample from the likeliest that reach this probability [1]")
      ->check(CLI::Range(1e-6, 1.0));
  app.add_option("--seed", seed, "Of the sample [1]");
  app.add_option("--threads", thread_count, "0: all that the process may use [0]")->check(CLI::Range(0, 1024));
  return examples::run_program(app, argc, argv, [&] {
    set_threads(thread_count);
    const examples::LanguageModel lm = examples::load_language_model(checkpoint);
    examples::stream_sample(lm.model, lm.tokenizer, prompt, tokens, sampling, seed);
    return 0;
  });
}

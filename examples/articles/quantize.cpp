// What a trained language model loses and gains if its weights become bfloat16, or integers of 8 bits with a scale per
// 32 of them (q8_0).
//
//   quantize --model lm.h5 --data your.txt --plot sizes.svg
#include <chrono>
#include <heed/heed.hpp>
#include <heed/plot/plot.hpp>

#include "examples/support/program.hpp"
#include "examples/support/text_windows.hpp"

namespace {

using namespace heed;
using namespace heed::examples;

struct Flags {
  std::string model = "lm.h5", data, plot;
  int threads = 0;
};

// A model with weights of one type: its memory, its loss, and the time per token when it writes.
struct Row {
  std::string type;
  double mebibytes, loss, milliseconds;
};

double mebibytes_of(GPT& model) {
  double bytes = 0;
  for (const NamedParameter& p : named_parameters(model))
    bytes += static_cast<double>(bytes_of(p.parameter->dtype(), p.parameter->numel()));
  return bytes / (1 << 20);
}

Row measure(const Flags& flags, DType type) {
  LanguageModel lm = load_language_model(flags.model);
  require(lm.model.options().causal, flags.model, " is a masked model; it must be a language model");
  to(lm.model, type);
  const TextWindows text(lm.tokenizer, flags.data,
                         {.context = lm.model.options().context, .name = "a part of the text"});
  const double loss = evaluate([&](const Batch& b) { return lm.model.loss(b.inputs, b.targets); }, text.held_out);
  const Index count = 200;
  const Tokens prompt = {text.held_out.tokens()[0]};
  Rng rng(1);
  const auto begin = std::chrono::steady_clock::now();
  generate(lm.model, prompt, count, {.temperature = 0}, rng);
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  return {std::string(name_of(type)), mebibytes_of(lm.model), loss, 1e3 * seconds / static_cast<double>(count)};
}

int compare(const Flags& flags) {
  set_threads(flags.threads);
  check_plot(flags.plot);
  std::printf("%-10s %10s %10s %12s\n", "weights", "MiB", "loss", "ms per token");
  std::vector<std::string> names;
  Bars size{.label = "MiB"}, loss{.label = "loss on held-out text"}, time{.label = "ms per token"};
  for (const DType type : {DType::float32, DType::bfloat16, DType::q8_0}) {
    const Row row = measure(flags, type);
    std::printf("%-10s %10.2f %10.4f %12.3f\n", row.type.c_str(), row.mebibytes, row.loss, row.milliseconds);
    names.push_back(row.type);
    size.values.push_back(row.mebibytes), loss.values.push_back(row.loss), time.values.push_back(row.milliseconds);
  }
  if (flags.plot.empty()) return 0;
  plot_bars(flags.plot, "Types of weights", names, {size, loss, time});
  std::fprintf(stderr, "drawn: %s\n", printable(flags.plot).c_str());
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  Flags flags;
  CommandLine line("Compares types of weights of a language model", "quantize");
  line.add("--model", flags.model, "Checkpoint of train_lm [lm.h5]", file_name("FILE", FileRole::input));
  line.add("--data", flags.data, "Text to evaluate on: its last tenth", file_name("FILE", FileRole::input),
           {.required = true});
  line.add("--plot", flags.plot, "Picture, .svg or .png", file_name("FILE.svg|png", FileRole::output));
  line.add_threads(flags.threads);
  return run_program(line, argc, argv, [&] { return compare(flags); });
}

// Time before the first step or token: initial values of a model, random tensors, writing and reading checkpoints.
// Medians; GPT-2 has 124M parameters.
//   bench_start [threads] [folder for checkpoints]
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <heed/core/memory.hpp>
#include <heed/core/parallel.hpp>
#include <heed/core/random.hpp>
#include <heed/data/checkpoint.hpp>
#include <heed/data/files.hpp>
#include <heed/layers/gpt.hpp>

#include "benchmarks/peak.hpp"

using namespace heed;

namespace {

constexpr GPTOptions kGpt2{
    .vocabulary = 50257, .context = 1024, .blocks = {.layers = 12, .attention = {.width = 768, .heads = 12}}};

void show(const char* what, double seconds, double gigabytes = 0) {
  std::printf("  %-40s %8.3f s", what, seconds);
  if (gigabytes > 0) std::printf("  %5.2f GB/s", gigabytes / seconds);
  std::printf("\n");
  std::fflush(stdout);
}

// Each run allocates memory from the system, as in a new process.
template <class F>
double cold_median(F&& f) {
  return benchmarks::median_seconds(
      [&] {
        f();
        release_cached_memory();
      },
      1);
}

}  // namespace

int main(int argc, char** argv) {
  set_threads(argc > 1 ? std::atoi(argv[1]) : 0);
  const std::filesystem::path folder = argc > 2 ? argv[2] : std::filesystem::temp_directory_path();
  const std::filesystem::path file = folder / "heed_bench_start.h5";
  try {
    check_files("bench_start", {{"FOLDER", file, FileRole::output}});
    if (std::filesystem::exists(file)) throw FileError("bench_start: " + file.string() + " exists; remove it");
  } catch (const FileError& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 2;
  }
  std::printf("%s, %d threads\n", arch(), threads());
  Tensor x = Tensor::empty({100'000'000});
  Rng rng(1);
  show("10^8 normal numbers", benchmarks::median_seconds([&] { rng.normal_(x); }, 1));
  show("10^8 uniform numbers", benchmarks::median_seconds([&] { rng.uniform_(x); }, 1));
  x = {};
  release_cached_memory();
  show("GPT-2: initial weights", cold_median([] {
         Rng of_model(1);
         const GPT model(kGpt2, of_model);
       }));
  show("GPT-2: no initial weights", cold_median([] {
         Rng of_model(1);
         const GPT model = skip_init<GPT>(kGpt2, of_model);
       }));

  GPT model(kGpt2, rng);
  Checkpoint checkpoint;
  store_model(checkpoint, model);
  for (const char* moment : {"optimizer/exp_avg.", "optimizer/exp_avg_sq."})
    for (const NamedParameter& p : named_parameters(model)) checkpoint.tensors[moment + p.name] = p.parameter->detach();
  save_checkpoint(file, checkpoint);
  const double gigabytes = static_cast<double>(std::filesystem::file_size(file)) / 1e9;
  std::printf("a checkpoint of GPT-2 and two moments: %.2f GB\n", gigabytes);
  show("save", cold_median([&] { save_checkpoint(file, checkpoint); }), gigabytes);
  show("load", cold_median([&] { load_checkpoint(file); }), gigabytes);
  show("load into a model", cold_median([&] { load_model(load_checkpoint(file), model); }), gigabytes);
  std::filesystem::remove(file);
}

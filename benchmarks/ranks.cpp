// Speed of a training step of a GPT in the run loop: in one process, or with one rank per process of mpirun, each with
// a part of the texts. The same work as torch's DistributedDataParallel over gloo.
//
//   bench_ranks nano|baby|gpt2 [--threads N] [--steps N] [--shards N] [--bf16] [--trace FILE]
//   mpirun -n 2 bench_ranks gpt2
//
// shards: shards per step; default: one per rank. Must be a multiple of the number of ranks and divide the texts of a
//   step. One process with two shards computes the same bits as two ranks.
// bf16: ranks exchange bfloat16.
// trace: rank 0 profiles the steps, prints the table and writes the trace, including the traffic of its link.
#include <cstdio>
#include <cstdlib>
#include <heed/heed.hpp>
#include <iostream>
#ifdef HEED_HAS_MPI
#include <heed/mpi/mpi_ranks.hpp>
#endif
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "benchmarks/gpt_sizes.hpp"
#include "benchmarks/peak.hpp"

using namespace heed;

namespace {

// A data set that returns one batch, made before the steps.
struct Texts {
  Batch batch(std::uint64_t, std::uint64_t) const { return one; }
  Batch one;
};

constexpr Index kWarmup = 3;

void measure(const benchmarks::GptSize& c, Ranks* ranks, Index shards, Index steps, DType communication,
             const std::string& trace) {
  const Index size = ranks == nullptr ? 1 : ranks->size();
  if (shards == 0) shards = size;
  if (shards < 0 || shards % size != 0 || c.batch % shards != 0) {
    std::fprintf(stderr,
                 "bench_ranks: --shards is %lld; it must be a multiple of the %lld ranks and divide %lld texts\n",
                 static_cast<long long>(shards), static_cast<long long>(size), static_cast<long long>(c.batch));
    std::exit(2);
  }
  const Index rows = c.batch / shards;
  Rng rng(0);
  GPT model = c.model(rng);
  AdamW optimizer(named_parameters(model), {.lr = 3e-4});
  Schedule schedule("constant", {.lr = 3e-4});
  const Texts texts{{rng.integers({rows, c.context}, 0, c.vocabulary), rng.integers({rows, c.context}, 0, c.vocabulary),
                     rows * c.context}};
  // Start times of the steps. A callback after each step would make all ranks wait for the values in flight.
  std::vector<double> begun;
  Index losses = 0;
  const auto loss = [&](const Batch& b) {
    if (losses++ % (shards / size) == 0) begun.push_back(benchmarks::seconds());
    return model.loss(b.inputs, b.targets);
  };
  RunOptions o{.steps = steps + kWarmup,
               .shards = shards,
               .grad_clip = 0,
               .ranks = {.communicator = ranks, .dtype = communication}};
  std::optional<Profile> profile;
  if (!trace.empty() && (ranks == nullptr || ranks->rank() == 0))
    o.output.profile = &profile.emplace(ProfileOptions{.warmup = kWarmup, .active = steps});
  run(model, optimizer, schedule, texts, {}, o, loss);
  if (ranks != nullptr && ranks->rank() > 0) return;
  std::vector<double> times;
  for (std::size_t i = begun.size() - static_cast<std::size_t>(steps); i < begun.size(); ++i)
    times.push_back(begun[i] - begun[i - 1]);
  const double median = benchmarks::median(times);
  std::printf("heed %s, %lld ranks of %d threads, %lld shards, %s: %.2f ms/step, %.0f tokens/s", c.name,
              static_cast<long long>(size), threads(), static_cast<long long>(shards), arch(), median * 1e3,
              static_cast<double>(c.batch * c.context) / median);
  if (ranks != nullptr)
    std::printf("; a rank sends %.2f MB per step",
                static_cast<double>(ranks->bytes_sent()) / 1e6 / static_cast<double>(o.steps));
  std::printf("\n");
  if (!profile) return;
  profile->print(std::cout);
  profile->export_chrome_trace(trace);
}

}  // namespace

int main(int argc, char** argv) {
  std::string name, trace;
  int threads = 0;
  Index steps = 10, shards = 0;
  DType communication = DType::float32;
  for (int i = 1; i < argc; ++i) {
    const std::string a = argv[i];
    if (a == "--threads" && i + 1 < argc)
      threads = std::stoi(argv[++i]);
    else if (a == "--steps" && i + 1 < argc)
      steps = std::stoi(argv[++i]);
    else if (a == "--shards" && i + 1 < argc)
      shards = std::stoi(argv[++i]);
    else if (a == "--trace" && i + 1 < argc)
      trace = argv[++i];
    else if (a == "--bf16")
      communication = DType::bfloat16;
    else
      name = a;
  }
  try {
    check_files("bench_ranks", {{"--trace", trace, FileRole::output}});
  } catch (const FileError& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 2;
  }
  std::unique_ptr<Ranks> ranks;
#ifdef HEED_HAS_MPI
  ranks = join_mpi_ranks();
#endif
  if (threads > 0) set_threads(threads);
  for (const benchmarks::GptSize& c : benchmarks::kGptSizes)
    if (name == c.name) return measure(c, ranks.get(), shards, steps, communication, trace), 0;
  std::fprintf(stderr, "bench_ranks: unknown configuration '%s'; it must be nano, baby or gpt2\n", name.c_str());
  return 2;
}

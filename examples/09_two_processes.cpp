// Tutorial 9: one model, trained by several processes. Run the program alone, then by mpirun:
//
//   build/release/examples/09_two_processes
//   mpirun -n 2 build/release/examples/09_two_processes
//
// The last line, a hash of all bits of all weights, is the same.
#include <cstdio>
#include <cstring>
#include <heed/heed.hpp>

#include "examples/support/program.hpp"
#include "examples/support/program_ranks.hpp"

using namespace heed;

namespace {

// FNV-1a hash of the bits of all parameters.
std::uint64_t fingerprint(const std::vector<NamedParameter>& parameters) {
  std::uint64_t hash = 0xcbf29ce484222325;
  for (const NamedParameter& p : parameters)
    for (const float value : p.parameter->to_vector<float>()) {
      std::uint32_t bits = 0;
      std::memcpy(&bits, &value, sizeof bits);
      hash = (hash ^ bits) * 0x100000001b3;
    }
  return hash;
}

// `ranks` is null if mpirun did not start the program. The code below is the same for one process.
int lesson(Ranks* ranks) {
  const int size = ranks == nullptr ? 1 : ranks->size();
  if (examples::is_first(ranks)) std::printf("%d process%s\n", size, size == 1 ? "" : "es");

  // Every process makes the same model and the same data: both depend on a seed only.
  const CopyTask task({.batch = 4, .length = 6});
  Rng rng(1);
  GPT model({.vocabulary = task.vocabulary(),
             .context = 6,
             .blocks = {.layers = 1, .attention = {.width = 16, .heads = 2}, .dropout = 0.1}},
            rng);
  AdamW optimizer(decay_groups(model, 0.1), {.lr = 1e-2});
  Schedule schedule("cosine", {.lr = 1e-2, .warmup = 5, .steps = 40});

  // A step has eight shards of four texts. One process computes all of them, one after another. Each of two processes
  // computes four; three processes compute 2, 2 and 4. Batches and dropout of a shard do not depend on the process that
  // computes it. Gradients are summed in the same tree over shards for any number of processes: ((0 + 1) + (2 + 3)) +
  // ((4 + 5) + (6 + 7)).
  const RunResult result =
      run(model, optimizer, schedule, task, {}, {.steps = 40, .shards = 8, .ranks = {.communicator = ranks}});

  // All processes now have the same weights and the same history. The first one prints.
  if (!examples::is_first(ranks)) return 0;
  std::printf("loss %.4f at the start, %.4f at the end\n", result.history.losses.front(), result.history.losses.back());
  std::printf("hash of the weights: %016llx\n", static_cast<unsigned long long>(fingerprint(named_parameters(model))));
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  return examples::run_tutorial("Tutorial 9: one model, trained by several processes", argc, argv,
                                [] { return examples::run_on_ranks(0, lesson); });
}

// Saves and checks checkpoints, for tests that kill it or fill its disk.
//   checkpoint_tool save FILE STEP   saves 10000 numbers that depend on STEP, and three in bfloat16
//   checkpoint_tool tell FILE        prints STEP; exit code 3 if a number is wrong
#include <cstdio>
#include <heed/data/checkpoint.hpp>

using namespace heed;

static Tensor numbers(std::uint64_t step) {
  Tensor x = Tensor::arange(10000, DType::float64);
  for (Index i = 0; i < x.numel(); ++i) x.mutable_data<double>()[i] += 1e-3 * static_cast<double>(step);
  return x;
}

static int run(const std::string& verb, const char* file, const char* step) {
  if (verb == "save") {
    Checkpoint c;
    c.counters["step"] = std::stoull(step);
    c.tensors["model/numbers"] = numbers(c.counters["step"]);
    c.tensors["model/few"] = Tensor::zeros({3}, DType::bfloat16);
    save_checkpoint(file, c);
    return 0;
  }
  const Checkpoint c = load_checkpoint(file);
  const bool good = c.tensor("model/numbers").to_vector<double>() == numbers(c.counter("step")).to_vector<double>();
  std::printf("%llu\n", static_cast<unsigned long long>(c.counter("step")));
  return good ? 0 : 3;
}

int main(int argc, char** argv) {
  if (argc < 3) return 2;
  try {
    return run(argv[1], argv[2], argc > 3 ? argv[3] : "0");
  } catch (const Error& e) {
    std::printf("%s\n", e.what());
    return 1;
  }
}

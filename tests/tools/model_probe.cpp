// Writes what a published model computes, for tests/jobs/pretrained, which compares it with other programs.
//
// usage: model_probe TASK MODEL IN OUT.npy
//   tokens   the ids of the text IN, int32 [N]
//   logits   IN has ids between spaces: float32 [N, vocabulary]
//   greedy   IN has ids: the 100 likeliest tokens that follow, int32 [100]
//   vectors  each line of IN is a text: float32 [lines, width]; prints the seconds
#include <chrono>
#include <fstream>
#include <heed/heed.hpp>
#include <iostream>
#include <iterator>

namespace {

using namespace heed;

std::string text_of(const char* file) {
  std::ifstream in(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

Tokens ids_of(const char* file) {
  std::ifstream in(file);
  return {std::istream_iterator<std::int32_t>(in), {}};
}

Tensor row(const Tokens& ids) { return Tensor::from(ids, {1, static_cast<Index>(ids.size())}); }

Tensor vectors(const Pretrained& p, const char* file) {
  std::ifstream in(file);
  std::vector<std::string> lines;
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  encode_texts(p, {lines.front()});
  const auto begin = std::chrono::steady_clock::now();
  const Tensor result = encode_texts(p, lines);
  std::cout << std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count() << '\n';
  return result;
}

Tensor result_of(const std::string& task, const Pretrained& p, const char* file) {
  const NoTape no_tape;
  if (task == "tokens") {
    const Tokens ids = p.lm.tokenizer.encode(text_of(file));
    return Tensor::from(ids, {static_cast<Index>(ids.size())});
  }
  if (task == "logits") return p.lm.model(row(ids_of(file)))[0];
  if (task == "vectors") return vectors(p, file);
  require(task == "greedy", "model_probe: the task is ", task, "; it must be tokens, logits, greedy or vectors");
  Rng rng;
  const Tokens made = generate(p.lm.model, ids_of(file), 100, {.temperature = 0}, rng);
  return Tensor::from(made, {static_cast<Index>(made.size())});
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 5) return std::cerr << "usage: model_probe TASK MODEL IN OUT.npy\n", 2;
  try {
    const Pretrained p = load_pretrained(argv[2]);
    save_npy(argv[4], result_of(argv[1], p, argv[3]).contiguous());
  } catch (const std::exception& error) {
    std::cerr << "model_probe: " << error.what() << '\n';
    return 1;
  }
}

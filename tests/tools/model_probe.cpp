// Writes what a published model computes, for tests/jobs/pretrained, which compares it with other programs.
//
// usage: model_probe TASK MODEL IN OUT.npy [ADAPTER]
//   tokens   the ids of the text IN, int32 [N]
//   logits   IN has ids between spaces: float32 [N, vocabulary]
//   greedy   IN has ids: the 100 likeliest tokens that follow, int32 [100]
//   vectors  each line of IN is a text: float32 [lines, width]; prints the seconds
//   losses   trains ADAPTER, a folder of PEFT: each line of IN has the ids of a row, and each step takes two rows.
//            The loss of each step, float64 [steps]. Then writes the trained adapter to the folder ADAPTER.trained.
//   adapter  IN has ids: the logits with a random adapter, which is written to the folder ADAPTER
// Tasks without a model:
//   ids      MODEL is a tokenizer.json, and each line of IN a text as JSON: the ids of all lines, each with -1 after it
//   stored   MODEL is a safetensors file, and IN has the name of a tensor: its values
//   means    MODEL is a safetensors file with one matrix, and each line of IN has ids: the mean of their rows
#include <chrono>
#include <fstream>
#include <heed/heed.hpp>
#include <iostream>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

namespace {

using namespace heed;

struct Request {
  std::string task, model, in, adapter;
};

std::string text_of(const std::string& file) {
  std::ifstream in(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

std::vector<std::string> lines_of(const std::string& file) {
  std::ifstream in(file, std::ios::binary);
  std::vector<std::string> lines;
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

Tokens ids_of(const std::string& line) {
  std::istringstream in(line);
  return {std::istream_iterator<std::int32_t>(in), {}};
}

Tensor row(const Tokens& ids) { return Tensor::from(ids, {1, static_cast<Index>(ids.size())}); }

Tensor tokens(const Request& r) {
  const Tokens ids = load_pretrained(r.model).lm.tokenizer.encode(text_of(r.in));
  return Tensor::from(ids, {static_cast<Index>(ids.size())});
}

Tensor logits(const Request& r) {
  const NoTape no_tape;
  const Evaluation evaluation;  // no dropout
  return load_pretrained(r.model).lm.model(row(ids_of(text_of(r.in))))[0];
}

Tensor greedy(const Request& r) {
  Rng rng;
  const Tokens made = generate(load_pretrained(r.model).lm.model, ids_of(text_of(r.in)), 100, {.temperature = 0}, rng);
  return Tensor::from(made, {static_cast<Index>(made.size())});
}

Tensor vectors(const Request& r) {
  const Pretrained p = load_pretrained(r.model);
  const std::vector<std::string> lines = lines_of(r.in);
  encode_texts(p, {lines.front()});
  const auto begin = std::chrono::steady_clock::now();
  const Tensor result = encode_texts(p, lines);
  std::cout << std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count() << '\n';
  return result;
}

// The options of the optimizer are those of `curve` in tests/jobs/pretrained.
Tensor losses(const Request& r) {
  constexpr std::size_t kRows = 2;
  Pretrained p = load_pretrained(r.model);
  GPT& model = p.lm.model;
  load_peft(r.adapter, model, peft_names(p));
  AdamW optimizer(trainable_parameters(model), {.lr = 1e-3, .betas = {0.9, 0.999}, .eps = 1e-8, .weight_decay = 0.01});
  const std::vector<std::string> lines = lines_of(r.in);
  std::vector<double> losses;
  for (std::size_t i = 0; i + kRows <= lines.size(); i += kRows) {
    Tokens ids;
    for (std::size_t j = i; j < i + kRows; ++j) std::ranges::copy(ids_of(lines[j]), std::back_inserter(ids));
    const Tensor batch = Tensor::from(ids, {kRows, static_cast<Index>(ids.size() / kRows)});
    const Index last = batch.dim(1) - 1;
    Tape tape;
    const Tensor loss = model.loss(batch.slice(1, 0, last).contiguous(), batch.slice(1, 1, last + 1).contiguous());
    losses.push_back(loss.item());
    tape.backward(loss);
    optimizer.clipped_step(1);
    optimizer.zero_grad();
  }
  save_peft(r.adapter + ".trained", model, peft_names(p));
  return Tensor::from(losses, {static_cast<Index>(losses.size())});
}

Tensor adapter(const Request& r) {
  Pretrained p = load_pretrained(r.model);
  Rng rng(1);
  const bool stacked = p.family == "gpt2";  // queries, keys and values are one module
  add_lora(p.lm.model, {.rank = 4, .alpha = 8, .targets = stacked ? "qkv,proj,up,down" : "all"}, rng);
  for (const NamedParameter& q : trainable_parameters(p.lm.model)) init::normal_(*q.parameter, rng, 0, 0.1);
  save_peft(r.adapter, p.lm.model, peft_names(p));
  const NoTape no_tape;
  const Evaluation evaluation;
  return p.lm.model(row(ids_of(text_of(r.in))))[0];
}

Tensor ids(const Request& r) {
  const JsonTokenizer tokenizer = JsonTokenizer::load(r.model);
  Tokens ids;
  for (const std::string& line : lines_of(r.in)) {
    std::ranges::copy(tokenizer.encode(nlohmann::json::parse(line).get<std::string>()), std::back_inserter(ids));
    ids.push_back(-1);
  }
  return Tensor::from(ids, {static_cast<Index>(ids.size())});
}

Tensor stored(const Request& r) {
  const SafetensorsFile file(r.model);
  std::string name = text_of(r.in);
  while (name.ends_with('\n')) name.pop_back();
  return load(file.tensor(name));
}

Tensor means(const Request& r) {
  const TensorsByName file = load_safetensors(r.model);
  require(file.size() == 1, "model_probe: ", r.model, " has ", file.size(), " tensors; it must have one");
  std::vector<Tensor> rows;
  for (const std::string& line : lines_of(r.in)) {
    const Tokens ids = ids_of(line);
    rows.push_back(mean(embedding(Tensor::from(ids, {static_cast<Index>(ids.size())}), file.begin()->second), 0));
  }
  return stack(rows, 0);
}

const std::map<std::string, Tensor (*)(const Request&)> kTasks = {
    {"tokens", tokens},   {"logits", logits}, {"greedy", greedy}, {"vectors", vectors}, {"losses", losses},
    {"adapter", adapter}, {"ids", ids},       {"stored", stored}, {"means", means}};

}  // namespace

int main(int argc, char** argv) {
  if (argc != 5 && argc != 6) return std::cerr << "usage: model_probe TASK MODEL IN OUT.npy [ADAPTER]\n", 2;
  try {
    const Request r{argv[1], argv[2], argv[3], argc == 6 ? argv[5] : ""};
    const auto task = kTasks.find(r.task);
    if (task == kTasks.end()) return std::cerr << "model_probe: there is no task " << r.task << '\n', 2;
    save_npy(argv[4], task->second(r).contiguous());
  } catch (const std::exception& error) {
    std::cerr << "model_probe: " << error.what() << '\n';
    return 1;
  }
}

// A Neural Turing machine (Graves, Wayne, Danihelka 2014) learns to copy sequences of random bits: an LSTM that reads
// and writes a memory of N rows by attention, whose weights it chooses by content and by location.
//
//   neural_turing_machine                          sequences of 1 to 10 vectors
//   neural_turing_machine --plot copy.svg          draws a copy of a longer sequence, and where it reads and writes
//
// Equations are those of the paper, section 3; the task is that of section 4.1.
#include <algorithm>
#include <cmath>
#include <heed/heed.hpp>

#include "examples/support/article.hpp"

namespace {

using namespace heed;
using namespace heed::examples;

constexpr Index kShifts = 3;  // a head moves by -1, 0 or 1

struct Settings : TrainingSettings {
  Index length = 10, bits = 8, rows = 64, size = 20, hidden = 100;

  Settings() { steps = 4000, batch = 16, held_out = 100; }
  void fields(SettingFields& f) {
    f("length", length, Kind::start, "Max vectors of a sequence in training [10]", whole(1));
    f("bits", bits, Kind::model, "Bits of a vector [8]", whole(1));
    f("rows", rows, Kind::model, "Rows of the memory [64]", whole(kShifts));
    f("size", size, Kind::model, "Numbers of a row [20]", whole(1));
    f("hidden", hidden, Kind::model, "Units of the LSTM [100]", whole(1));
    TrainingSettings::fields(f, "sequences");
  }
};

// Batches of sequences of one length: the vectors, a mark, and then nothing, while the vectors are to be written.
// inputs [B, 2 length + 1, bits + 1], targets [B, length, bits].
struct CopyBits {
  Index rows, length, bits;

  Batch of(Rng rng, Index n) const {
    const Tensor vectors = rng.integers({rows, n, bits}, 0, 2).to(DType::float32);
    Batch b;
    b.inputs = Tensor::zeros({rows, 2 * n + 1, bits + 1});
    b.inputs.slice(1, 0, n).slice(2, 0, bits).copy_(vectors);
    b.inputs.select(1, n).select(1, bits).fill_(1);
    b.targets = vectors;
    b.counted = rows * n * bits;
    return b;
  }
  Batch batch(std::uint64_t seed, std::uint64_t step) const {
    Rng rng(2 * seed, step);
    const Index n = 1 + rng.integer(length);
    return of(rng, n);
  }
};

// Sequences of each length in turn.
struct HeldOut {
  CopyBits sequences;
  Index count;
  std::uint64_t seed;

  Index size() const { return count; }
  Batch batch(Index i) const {
    return sequences.of(Rng(2 * seed + 1, static_cast<std::uint64_t>(i)), 1 + i % sequences.length);
  }
};

class TuringMachine {
 public:
  RecurrentCell controller;
  Linear interface;  // of the reading and the writing head: key, strength, gate, shifts, sharpness; erase and add
  Linear output;
  Parameter start;  // [2, rows]: logits of the first weights of both heads

  TuringMachine(const Settings& s, Rng& rng)
      : controller(RecurrentKind::lstm, s.bits + 1 + s.size, s.hidden, rng),
        interface(s.hidden, 2 * head_numbers(s.size) + 2 * s.size, rng),
        output(s.hidden + s.size, s.bits, rng),
        start(rng.normal({2, s.rows}, 0, 0.1)) {}

  // inputs [B, T, bits + 1] -> logits [B, T, bits]. `reads` and `writes`, unless null, get the weights [B, rows] of
  // each step.
  Tensor operator()(In inputs, std::vector<Tensor>* reads = nullptr, std::vector<Tensor>* writes = nullptr) const {
    const Index batch = inputs.dim(0), rows = start.dim(1), size = output.weight.dim(1) - controller.hidden();
    Tensor memory = Tensor::full({batch, rows, size}, 1e-6), read = Tensor::zeros({batch, size}), state;
    const Tensor first = softmax(start, -1);
    Tensor reading = first[0].expand({batch, rows}), writing = first[1].expand({batch, rows});
    std::vector<Tensor> made;
    for (Index t = 0; t < inputs.dim(1); ++t) {
      state = controller(concatenate({inputs->select(1, t), read}, 1), state);
      const Tensor h = controller.h(state), all = interface(h);
      const Index each = head_numbers(size);
      writing = addressed(all.slice(1, 0, each), memory, writing);
      const Tensor erase = sigmoid(all.slice(1, 2 * each, 2 * each + size)),
                   add = tanh(all.slice(1, 2 * each + size, 2 * each + 2 * size));
      memory = written(memory, writing, erase, add);
      reading = addressed(all.slice(1, each, 2 * each), memory, reading);
      read = matmul(reading.unsqueeze(1), memory).squeeze(1);
      made.push_back(output(concatenate({h, read}, 1)));
      if (reads != nullptr) reads->push_back(reading), writes->push_back(writing);
    }
    return stack(made, 1);
  }

  Tensor loss(const Batch& b) const { return binary_cross_entropy_with_logits(copied(b), b.targets); }
  Tensor copied(const Batch& b) const {  // logits of the steps after the mark
    const Index n = b.targets.dim(1);
    return (*this)(b.inputs).slice(1, n + 1, 2 * n + 1);
  }

  void members(MemberVisitor& visit) {
    visit("controller", controller);
    visit("interface", interface);
    visit("output", output);
    visit("start", start);
  }

 private:
  static Index head_numbers(Index size) { return size + 3 + kShifts; }

  // The weights of a head: `p` [B, head_numbers], memory [B, rows, size], the last weights [B, rows].
  static Tensor addressed(const Tensor& p, const Tensor& memory, const Tensor& last) {
    const Index size = memory.dim(2), rows = memory.dim(1);
    const auto number = [&](Index i) { return p.slice(1, size + i, size + i + 1); };  // [B, 1]
    // By content, equations 5 and 6: softmax of the strength times the cosine of key and row.
    const Tensor key = tanh(p.slice(1, 0, size)).unsqueeze(2);
    const Tensor product = matmul(memory, key).squeeze(2);
    const Tensor lengths = sqrt(sum(square(memory), {2}) * sum(square(key), {1}) + 1e-12);
    const Tensor content = softmax(softplus(number(0)) * (product / lengths), -1);
    // By location, equations 7 to 9: between content and the last weights, then a rotation, then sharper.
    const Tensor gate = sigmoid(number(1)), gated = gate * content + (1 - gate) * last;
    const Tensor shift = softmax(p.slice(1, size + 3, size + 3 + kShifts), -1);
    const Tensor around = concatenate({gated.slice(1, rows - 1, rows), gated, gated.slice(1, 0, 1)}, 1);
    Tensor moved = shift.slice(1, 0, 1) * around.slice(1, 2, rows + 2);
    for (Index i = 1; i < kShifts; ++i) moved = moved + shift.slice(1, i, i + 1) * around.slice(1, 2 - i, rows + 2 - i);
    const Tensor sharp = pow(moved + 1e-12, 1 + softplus(number(2)));
    return sharp / sum(sharp, {1}, true);
  }
  // Equations 3 and 4: rows are erased and added to by their weights.
  static Tensor written(const Tensor& memory, const Tensor& weights, const Tensor& erase, const Tensor& add) {
    const Tensor w = weights.unsqueeze(2);
    return memory * (1 - w * erase.unsqueeze(1)) + w * add.unsqueeze(1);
  }
};

// The loss per bit, and the wrong bits of a sequence.
Metrics metrics_of(const TuringMachine& model, const Batch& b) {
  const Tensor logits = model.copied(b), right = eq((logits > 0.).to(DType::float32), b.targets);
  const double wrong = static_cast<double>(right.numel()) - sum(right.to(DType::float32)).item();
  return {{"loss", binary_cross_entropy_with_logits(logits, b.targets).item()},
          {"wrong bits", wrong / static_cast<double>(b.samples())}};
}

// Draws the copy of one sequence, twice as long as any in training, and the weights of both heads.
void draw(const TuringMachine& model, const Settings& s, const std::string& plot) {
  const NoTape no_tape;
  const Batch b = CopyBits{1, s.length, s.bits}.of(Rng(s.seed, 999), 2 * s.length);
  std::vector<Tensor> reads, writes;
  const Tensor made = sigmoid(model(b.inputs, &reads, &writes))[0].slice(0, 2 * s.length + 1, 4 * s.length + 1);
  const auto panel = [](const char* title, const Tensor& x) {  // x [time, rows], drawn with time to the right
    MatrixPanel p{.title = title};
    for (Index i = 0; i < x.dim(1); ++i) p.values.push_back(x.select(1, i).contiguous().to_vector<double>());
    return p;
  };
  const auto weights_at = [&](const std::vector<Tensor>& w, Index begin) {
    return concatenate(std::vector<Tensor>(w.begin() + begin, w.begin() + begin + 2 * s.length), 0);
  };
  MatrixLabels bits{.title = "A sequence and its copy", .rows_name = "bit", .columns_name = "vector"};
  for (Index i = 0; i < s.bits; ++i) bits.rows.push_back(std::to_string(i));
  for (Index i = 0; i < 2 * s.length; ++i) bits.columns.push_back(std::to_string(i));
  plot_matrices(plot, bits, {{panel("given", b.targets[0]), panel("copied", made)}});
  MatrixLabels rows{.title = "Weights of the heads", .rows_name = "row of the memory", .columns_name = "vector"};
  for (Index i = 0; i < s.rows; ++i) rows.rows.push_back(std::to_string(i));
  rows.columns = bits.columns;
  const std::filesystem::path file(plot);
  const std::filesystem::path heads =
      file.parent_path() / (file.stem().string() + "_heads" + file.extension().string());
  plot_matrices(
      heads, rows,
      {{panel("written to", weights_at(writes, 0)), panel("read from", weights_at(reads, 2 * s.length + 1))}});
  std::fprintf(stderr, "drawn: %s, %s\n", printable(plot).c_str(), printable(heads.string()).c_str());
}

void train(const Settings& s, Article& article) {
  Rng rng(s.seed);
  TuringMachine model(s, rng);
  const auto metrics = [&](const Batch& b) { return metrics_of(model, b); };
  const HeldOut held_out{{1, s.length, s.bits}, s.held_out, s.seed};
  if (!article.train(model, s,
                     formatted("a memory of %ld x %ld, %ld units", long{s.rows}, long{s.size}, long{s.hidden}),
                     CopyBits{s.batch, s.length, s.bits}, held_out, metrics))
    return;
  if (article.result().validation_metrics.contains("wrong bits"))
    std::printf("wrong bits per sequence of up to %ld vectors: %.2f\n", long{s.length},
                article.result().validation_metrics.at("wrong bits"));
  const HeldOut longer{{1, 2 * s.length, s.bits}, 2 * s.length, s.seed + 1};
  std::printf("of up to %ld vectors, longer than any in training: %.2f\n", 2 * long{s.length},
              evaluate_metrics(metrics, longer).at("wrong bits"));
  if (!article.plot().empty()) draw(model, s, article.plot());
}

}  // namespace

int main(int argc, char** argv) {
  return run_article<Settings>({"neural_turing_machine", "Trains a Neural Turing machine to copy sequences of bits",
                                "a copy and the weights of both heads"},
                               argc, argv, train);
}

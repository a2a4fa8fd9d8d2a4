// The ranks of a run: their shards, their optimizers, and their communication except gradients and values.
#include <algorithm>
#include <cstring>
#include <functional>
#include <heed/optim/ranks/rank_gradients.hpp>
#include <heed/optim/ranks/run_ranks.hpp>

namespace heed::detail {

Ranks& ranks_of(const RankOptions& options) {
  struct Alone final : Ranks {
    Alone() : Ranks(0, 1) {}
    std::string host() const override { return "this process"; }
    void failed(const std::string&, int) override {}
    std::unique_ptr<Exchange> begin(std::span<const Outgoing>, std::span<const Incoming>, int) override {
      return nullptr;  // done
    }
  };
  static Alone alone;
  return options.communicator == nullptr ? alone : *options.communicator;
}

// ---- Optimizers ----

void RunRanks::divide(const std::vector<Optimizer*>& optimizers) {
  require(dtype_ == DType::float32 || dtype_ == DType::bfloat16, "run: ranks.dtype is ", name_of(dtype_),
          "; it must be float32 or bfloat16");
  for (const Optimizer* o : optimizers)
    for (const Trained& p : o->trained_parameters())
      require(dtype_ == DType::float32 || p.tensor.dtype() == DType::float32, o->name(),
              ": ranks.dtype is bfloat16, but ", p.name, " is ", name_of(p.tensor.dtype()),
              "; all parameters must be float32");
  optimizers_ = detail::divide(ranks_, optimizers);
}

std::unique_ptr<StepGradients> RunRanks::gradients() {
  if (is_alone()) return std::make_unique<LocalGradients>(optimizers_, dtype_);
  return std::make_unique<RankGradients>(exchanges_, shards_, optimizers_, dtype_);
}

const Division& RunRanks::division_of(const Optimizer& optimizer) const {
  return std::ranges::find(optimizers_, &optimizer, &DividedOptimizer::optimizer)->division;
}

// ---- Sums of numbers ----

RunRanks::RunRanks(const RankOptions& options, Index shards)
    : ranks_(ranks_of(options)),
      dtype_(options.dtype),
      shards_(divide_shards(shards, ranks_.size())),
      exchanges_(ranks_) {}

std::vector<std::string> RunRanks::gather(const std::string& here) const { return all_gather(ranks_, here); }

RunRanks::Gathered RunRanks::among_all(std::span<const double> here, std::vector<Index> begins) const {
  Gathered g;
  g.begins = std::move(begins);
  g.numbers.assign(static_cast<std::size_t>(g.begins.back()), 0.0);
  std::copy(here.begin(), here.end(), g.numbers.begin() + g.begins[me()]);
  return g;
}

RunRanks::Gathered RunRanks::among_all(std::span<const double> here) const {
  std::vector<Index> begins = {0};
  for (int r = 0; r < ranks_.size(); ++r) begins.push_back(begins.back() + static_cast<Index>(here.size()));
  return among_all(here, std::move(begins));
}

std::vector<double> RunRanks::sums_of(const Gathered& g) {
  std::vector<double> sums(static_cast<std::size_t>(g.begins[1]));
  for (std::size_t i = 0; i < g.numbers.size(); ++i) sums[i % sums.size()] += g.numbers[i];
  return sums;
}

void RunRanks::start(Gathered& g) {
  g.ticket = exchanges_.add(gathering(ranks_, g.numbers, g.begins), ExchangeThread::small);
}

void RunRanks::start_sum(const std::vector<double>& numbers) {
  summed_ = among_all(numbers);
  start(summed_);
}

std::vector<double> RunRanks::finish_sum() {
  exchanges_.wait(summed_.ticket);
  return sums_of(summed_);
}

void RunRanks::sum(std::span<double> numbers) const {
  Gathered all = among_all(numbers);
  all_gather(ranks_, all.numbers, all.begins);
  std::ranges::copy(sums_of(all), numbers.begin());
}

bool RunRanks::any(bool here) const {
  double count[] = {here ? 1.0 : 0.0};
  sum(count);
  return count[0] > 0;
}

void RunRanks::start_sum_of_shards(std::vector<double> here, std::span<const bool> flags) {
  std::vector<Index> begins = shards_.begins;
  for (std::size_t r = 0; r < begins.size(); ++r) begins[r] += static_cast<Index>(r * flags.size());
  here.insert(here.end(), flags.begin(), flags.end());
  summed_of_shards_ = among_all(here, std::move(begins));
  start(summed_of_shards_);
}

double RunRanks::finish_sum_of_shards(std::span<bool> flags) {
  const auto& [all, begins, ticket] = summed_of_shards_;
  exchanges_.wait(ticket);
  double sum = 0;
  std::fill(flags.begin(), flags.end(), false);
  for (std::size_t r = 0; r + 1 < begins.size(); ++r) {
    const auto flags_begin = static_cast<std::size_t>(begins[r + 1]) - flags.size();
    for (auto i = static_cast<std::size_t>(begins[r]); i < flags_begin; ++i) sum += all[i];
    for (std::size_t f = 0; f < flags.size(); ++f) flags[f] = flags[f] || all[flags_begin + f] != 0;
  }
  return sum;
}

// ---- Checkpoints ----

namespace {

// Gathers a divided tensor of an optimizer's state: rank 0 receives all items, the others send theirs.
Tensor gather_part(Ranks& ranks, const Division& division, const Optimizer::StatePart& s) {
  const auto parameter = static_cast<std::size_t>(s.parameter);
  const auto kept = [&](int r) { return division.kept(parameter, r, s.whole.numel()); };
  const auto bytes = [&](const Stretch& x) { return static_cast<std::size_t>(x.count()) * size_of(s.tensor.dtype()); };
  const Stretch mine = kept(ranks.rank());
  const Tensor here = s.tensor.detach().dense();
  Messages all;
  Tensor whole;
  if (ranks.rank() > 0) {
    all.send(0, here.raw(), bytes(mine));
  } else {
    whole = Tensor::empty(s.whole, here.dtype());
    if (mine.count() > 0) std::memcpy(address_of(whole, mine.begin), here.raw(), bytes(mine));
    for (int r = 1; r < ranks.size(); ++r) all.receive(r, address_of(whole, kept(r).begin), bytes(kept(r)));
  }
  ranks.exchange(all.out, all.in);
  return whole;
}

// Numbers that rank 0 sends to the others instead of the index of a divided tensor: the end of the checkpoint.
constexpr double kDone = -1, kFailed = -2;

// Returns the number that rank 0 gives.
double broadcast_from_first(Ranks& ranks, double number) {
  Messages all;
  if (ranks.rank() > 0)
    all.receive(0, &number, sizeof number);
  else
    for (int r = 1; r < ranks.size(); ++r) all.send(r, &number, sizeof number);
  ranks.exchange(all.out, all.in);
  return number;
}

}  // namespace

void RunRanks::store(const Optimizer& optimizer, const std::string& section, Checkpoint& c) const {
  for (const Optimizer::StatePart& part : optimizer.state_parts()) {
    const std::string name = section + "/" + part.name;
    if (part.parameter < 0 || is_alone())
      c.tensors[name] = part.tensor;
    else
      c.late[name] = {part.whole, part.tensor.dtype(),
                      [this, &optimizer, part] { return gather_part(ranks_, division_of(optimizer), part); }};
  }
}

std::string RunRanks::save(Checkpoint& c, const std::filesystem::path& file) const {
  std::vector<std::function<Tensor()>> parts;  // all ranks have the same list
  for (auto& [name, late] : c.late) {
    parts.push_back(late.values);
    late.values = [this, gather = late.values, i = parts.size() - 1] {
      broadcast_from_first(ranks_, static_cast<double>(i));
      return gather();
    };
  }
  if (is_first()) {
    std::string error;
    try {
      save_checkpoint(file, c);
    } catch (const Error& e) {
      error = e.what();
    }
    broadcast_from_first(ranks_, error.empty() ? kDone : kFailed);
    return error;
  }
  double part = broadcast_from_first(ranks_, 0);
  for (; part >= 0; part = broadcast_from_first(ranks_, 0)) parts[static_cast<std::size_t>(part)]();
  return part == kDone ? "" : "rank 0 could not write it";
}

}  // namespace heed::detail

// Communication between the ranks of a run, except gradients and parameters.
#include <algorithm>
#include <cstring>
#include <heed/optim/run/run_ranks.hpp>

namespace heed::detail {
// ---- Sums of numbers ----

RunRanks::RunRanks(Ranks* ranks, Index shards)
    : ranks_(ranks), shards_(divide_shards(shards, ranks == nullptr ? 1 : ranks->size())) {
  if (ranks_ != nullptr) exchanges_.emplace(*ranks_);
}

RunRanks::Gathered RunRanks::among_all(std::span<const double> here, std::vector<Index> begins) const {
  Gathered g;
  g.begins = std::move(begins);
  g.numbers.assign(static_cast<std::size_t>(g.begins.back()), 0.0);
  std::copy(here.begin(), here.end(), g.numbers.begin() + g.begins[me()]);
  return g;
}

RunRanks::Gathered RunRanks::among_all(std::span<const double> here) const {
  std::vector<Index> begins = {0};
  for (int r = 0; r < size(); ++r) begins.push_back(begins.back() + static_cast<Index>(here.size()));
  return among_all(here, std::move(begins));
}

std::vector<double> RunRanks::sums_of(const Gathered& g) {
  std::vector<double> sums(static_cast<std::size_t>(g.begins[1]));
  for (std::size_t i = 0; i < g.numbers.size(); ++i) sums[i % sums.size()] += g.numbers[i];
  return sums;
}

void RunRanks::start(Gathered& g) {
  if (ranks_ == nullptr) return;
  g.ticket = exchanges_->add(gathering(*ranks_, g.numbers, g.begins), ExchangeThread::small);
}

void RunRanks::start_sum(const std::vector<double>& numbers) {
  summed_ = among_all(numbers);
  start(summed_);
}

std::vector<double> RunRanks::finish_sum() {
  if (ranks_ != nullptr) exchanges_->wait(summed_.ticket);
  return sums_of(summed_);
}

void RunRanks::sum(std::span<double> numbers) const {
  if (ranks_ == nullptr) return;
  Gathered all = among_all(numbers);
  all_gather(*ranks_, all.numbers, all.begins);
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
  if (ranks_ != nullptr) exchanges_->wait(ticket);
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

// A tensor of a divided state. All ranks have the same list of parts.
struct Part {
  const Optimizer* optimizer;
  Optimizer::StatePart state;
};

// Gathers the items of a part: rank 0 receives all, the others send theirs.
Tensor gather_part(Ranks& ranks, const Part& part) {
  const Optimizer::StatePart& s = part.state;
  const auto parameter = static_cast<std::size_t>(s.parameter);
  const Division& division = *part.optimizer->division();
  const auto kept = [&](int r) { return division.kept(parameter, r, s.shape.numel()); };
  const auto bytes = [&](const Stretch& x) { return static_cast<std::size_t>(x.count()) * size_of(s.dtype); };
  const Stretch mine = kept(ranks.rank());
  const Tensor here = s.here.detach().dense();
  Messages all;
  Tensor whole;
  if (ranks.rank() > 0) {
    all.send(0, here.raw(), bytes(mine));
  } else {
    whole = Tensor::empty(s.shape, s.dtype);
    if (mine.count() > 0) std::memcpy(address_of(whole, mine.begin), here.raw(), bytes(mine));
    for (int r = 1; r < ranks.size(); ++r) all.receive(r, address_of(whole, kept(r).begin), bytes(kept(r)));
  }
  ranks.exchange(all.out, all.in);
  return whole;
}

// Numbers that rank 0 sends to the others instead of the index of a part: the end of the checkpoint.
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

std::string RunRanks::save(Checkpoint& c, const std::vector<std::pair<std::string, const Optimizer*>>& sections,
                           const std::function<void(const Checkpoint&)>& write) const {
  const auto error_of_write = [&]() -> std::string {
    try {
      write(c);
    } catch (const Error& e) {
      return e.what();
    }
    return "";
  };
  if (ranks_ == nullptr) return error_of_write();
  std::vector<Part> parts;
  for (const auto& [section, optimizer] : sections)
    for (Optimizer::StatePart s : optimizer->state_parts())
      if (s.parameter >= 0) {
        s.name = section + "/" + s.name;
        parts.push_back({optimizer, s});
      }
  if (is_first()) {
    for (std::size_t i = 0; i < parts.size(); ++i)
      c.late[parts[i].state.name] = {parts[i].state.shape, parts[i].state.dtype, [this, &parts, i] {
                                       broadcast_from_first(*ranks_, static_cast<double>(i));
                                       return gather_part(*ranks_, parts[i]);
                                     }};
    const std::string error = error_of_write();
    broadcast_from_first(*ranks_, error.empty() ? kDone : kFailed);
    return error;
  }
  double part = broadcast_from_first(*ranks_, 0);
  for (; part >= 0; part = broadcast_from_first(*ranks_, 0))
    gather_part(*ranks_, parts[static_cast<std::size_t>(part)]);
  return part == kDone ? "" : "rank 0 could not write it";
}

}  // namespace heed::detail

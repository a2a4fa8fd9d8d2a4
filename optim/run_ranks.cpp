// What the ranks of a run tell each other beside gradients and parameters.
#include <cstring>
#include <fstream>
#include <heed/core/detail/profiler.hpp>
#include <heed/core/kernels/dispatch.hpp>
#include <heed/core/parallel.hpp>
#include <heed/data/text.hpp>
#include <heed/optim/detail/run_ranks.hpp>
#include <iterator>
#include <numeric>
#include <sstream>

namespace heed::detail {
namespace {

// Numbers and names as bytes, for ranks of one program.
class Packed {
 public:
  Packed() = default;
  explicit Packed(std::string bytes) : bytes_(std::move(bytes)) {}

  void add(double x) { bytes_.append(reinterpret_cast<const char*>(&x), sizeof x); }
  void add(const std::string& text) {
    add(static_cast<double>(text.size()));
    bytes_ += text;
  }
  double number() {
    double x = 0;
    std::memcpy(&x, bytes_.data() + at_, sizeof x);
    at_ += sizeof x;
    return x;
  }
  std::string text() {
    const auto size = static_cast<std::size_t>(number());
    at_ += size;
    return bytes_.substr(at_ - size, size);
  }
  bool at_end() const { return at_ == bytes_.size(); }
  const std::string& bytes() const { return bytes_; }

 private:
  std::string bytes_;
  std::size_t at_ = 0;
};

// A hash that tells ranks apart which differ; nobody wants to deceive it. The finalizer is MurmurHash3's.
class Hash {
 public:
  void add(const void* bytes, std::size_t count) {
    const char* p = static_cast<const char*>(bytes);
    for (; count > 0; p += kWord, count -= std::min(count, kWord)) {
      std::uint64_t word = count;
      std::memcpy(&word, p, std::min(count, kWord));
      state_ = (state_ ^ word) * 0x9e3779b97f4a7c15;
      state_ ^= state_ >> 32;
    }
  }
  void add(const std::string& text) { add(text.data(), text.size()); }
  void add(const Tensor& x) {
    if (!x.defined()) return add("undefined");
    std::ostringstream what;
    what << x.shape() << name_of(x.dtype());
    add(what.str());
    const Tensor values = x.detach().dense();
    add(values.raw(), static_cast<std::size_t>(values.numel()) * size_of(values.dtype()));
  }
  std::string hex() const {
    std::ostringstream out;
    out << std::hex << state_;
    return out.str();
  }

 private:
  static constexpr std::size_t kWord = sizeof(std::uint64_t);
  std::uint64_t state_ = 0x243f6a8885a308d3;
};

}  // namespace

// ---- Evaluation ----

void MetricsMean::add(Index batch, double counted, const Metrics& metrics) {
  const bool first = counted_ == 0;
  require(metrics.count("loss") == 1 && (first || metrics.size() == sums_.size()), "evaluate: batch ", batch, " has ",
          metrics.size(), " numbers, the first had ", sums_.size(), "; each must have the same, among them the loss");
  for (const auto& [name, value] : metrics) {
    require(first || sums_.count(name) == 1, "evaluate: batch ", batch, " has the number ", name,
            ", which the first had not; each must have the same");
    sums_[name] += counted * value;
  }
  counted_ += counted;
}

Metrics MetricsMean::value(Index batches) const {
  require(batches == 0 || counted_ > 0,
          "evaluate: all targets are ignored: Batch::counted, the number of those that are not, is 0 in each of the ",
          batches, " batches; it must be above 0 in one");
  Metrics means = sums_;
  for (auto& [name, sum] : means) sum /= counted_;
  return means;
}

Metrics evaluate_metrics(const std::function<Metrics(const Batch&)>& metrics, const EvaluationSet& set, Index batches,
                         Ranks* ranks) {
  const ProfileScope scope("evaluation");
  const NoTape no_tape;
  const Evaluation evaluation;
  const Index n = batches > 0 ? std::min(batches, set.size()) : set.size();
  const Index me = ranks == nullptr ? 0 : ranks->rank(), size = ranks == nullptr ? 1 : ranks->size();
  MetricsMean mean;
  Packed mine;
  for (Index i = me; i < n; i += size) {
    const Batch b = set.batch(i);
    const auto counted = static_cast<double>(b.counted);
    const Metrics told = counted > 0 ? metrics(b) : Metrics();
    if (ranks == nullptr) {
      if (counted > 0) mean.add(i, counted, told);
      continue;
    }
    mine.add(counted), mine.add(static_cast<double>(told.size()));
    for (const auto& [name, value] : told) mine.add(name), mine.add(value);
  }
  if (ranks == nullptr) return mean.value(n);
  std::vector<Packed> all;
  for (std::string& bytes : all_gather(*ranks, mine.bytes())) all.emplace_back(std::move(bytes));
  for (Index i = 0; i < n; ++i) {
    Packed& from = all[static_cast<std::size_t>(i % size)];
    const double counted = from.number();
    Metrics told;
    for (double left = from.number(); left > 0; --left) {
      const std::string name = from.text();
      told[name] = from.number();
    }
    if (counted > 0) mean.add(i, counted, told);
  }
  return mean.value(n);
}

// ---- Small numbers ----

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

void RunRanks::require_same(const RunProperties& here) const {
  if (ranks_ == nullptr) return;
  Packed mine;
  mine.add(ranks_->host());
  for (const auto& [name, value] : here) mine.add(name), mine.add(value);
  std::vector<Packed> all;
  for (std::string& bytes : all_gather(*ranks_, mine.bytes())) all.emplace_back(std::move(bytes));
  const auto properties_of = [](Packed& p) {
    std::map<std::string, std::string> list;
    while (!p.at_end()) {
      const std::string name = p.text();
      list[name] = p.text();
    }
    return list;
  };
  const std::string first_host = all[0].text();
  const auto first = properties_of(all[0]);
  for (std::size_t r = 1; r < all.size(); ++r) {
    const std::string host = all[r].text();
    const auto other = properties_of(all[r]);
    for (const auto& [name, value] : here) {
      const auto a = first.find(name), b = other.find(name);
      const bool there = a != first.end() && b != other.end();
      require(there && a->second == b->second, "run: ranks differ in ", name, ": it is ",
              there ? printable(a->second) : "?", " on rank 0 (", first_host, ") and ",
              there ? printable(b->second) : "?", " on rank ", r, " (", host, "); it must be the same on all");
    }
  }
}

namespace {

std::string hash_of(const TensorsByName& tensors) {
  Hash hash;
  for (const auto& [name, tensor] : tensors) hash.add(name), hash.add(tensor);
  return hash.hex();
}

std::string hash_of(const Batch& batch) {
  Hash hash;
  hash.add(batch.inputs), hash.add(batch.targets);
  for (const auto& [name, tensor] : batch.others) hash.add(name), hash.add(tensor);
  hash.add(&batch.counted, sizeof batch.counted);
  return hash.hex();
}

std::string hash_of_program() {
  std::ifstream file("/proc/self/exe", std::ios::binary);
  Hash hash;
  std::string block(std::size_t{1} << 20, '\0');
  while (file.read(block.data(), static_cast<std::streamsize>(block.size())), file.gcount() > 0)
    hash.add(block.data(), static_cast<std::size_t>(file.gcount()));
  return hash.hex();
}

}  // namespace

RunProperties properties_of(const RunParts& parts, const RunOptions& o, const std::vector<std::string>& names,
                            Index step) {
  const auto text = [](const auto&... items) {
    std::ostringstream out;
    out.precision(9);
    ((out << items << ' '), ...);
    return out.str().substr(0, out.str().size() - 1);
  };
  RunProperties all = {{"the program", hash_of_program()},
                       {"the instruction set (HEED_ARCH)",
                        kernels::fuses(kernels::level()) ? "one that fuses multiply-add" : arch()},
                       {"seed", text(o.seed)},
                       {"steps", text(o.steps)},
                       {"seconds", text(o.seconds)},
                       {"accumulate", text(o.accumulate)},
                       {"shards", text(o.shards)},
                       {"communication_dtype", text(name_of(o.communication_dtype))},
                       {"grad_clip", text(o.grad_clip)},
                       {"precision", text(name_of(o.precision))},
                       {"eval_every and eval_batches", text(o.eval_every, o.eval_batches)},
                       {"patience and monitor", text(o.patience, o.monitor, o.monitor_highest)},
                       {"checkpoint_every and keep_every", text(o.checkpoint_every, o.keep_every)},
                       {"whether there is an average, last weights, a checkpoint, a best one, callbacks",
                        text(o.average != nullptr, o.last_weights != nullptr, !o.checkpoint.empty(),
                             !o.best.empty(), !!o.after_step, !!o.after_evaluation, o.handle_interrupt)},
                       {"the step that they go on from", text(step)}};
  for (const auto& [name, value] : o.texts) all.emplace_back("the text " + name, value);
  for (std::size_t i = 0; i < parts.updates.size(); ++i) {
    const Optimizer& optimizer = parts.updates[i].optimizer;
    all.emplace_back(i == 0 ? "optimizer" : "optimizer." + names[i],
                     text(optimizer.name(), optimizer.lr(), optimizer.step_count()));
    for (int g = 0; g < optimizer.groups(); ++g)
      all.back().second += text("", optimizer.lr(g), optimizer.weight_decay(g));
  }
  Checkpoint model;
  parts.store(model);
  all.emplace_back("the model's weights", hash_of(model.tensors));
  if (step < o.steps) all.emplace_back("the training data", hash_of(parts.batch(o.seed, 0)));
  const Index batches = parts.validation.size();
  all.emplace_back("the validation data",
                   text(batches, batches > 0 ? hash_of(parts.validation.batch(0)) : std::string("none")));
  return all;
}

// ---- Checkpoints ----

namespace {

// A tensor of a divided state, and where it stands in the list of all of them, which is the same on all ranks.
struct Part {
  const Optimizer* optimizer;
  Optimizer::StatePart state;
};

// Its items, of which each rank has some: rank 0 gets all, others send theirs.
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

// What rank 0 asks all others for: the number of a part, or kDone.
constexpr double kDone = -1;

double told_by_first(Ranks& ranks, double number) {
  Messages all;
  if (ranks.rank() > 0)
    all.receive(0, &number, sizeof number);
  else
    for (int r = 1; r < ranks.size(); ++r) all.send(r, &number, sizeof number);
  ranks.exchange(all.out, all.in);
  return number;
}

}  // namespace

void RunRanks::save(Checkpoint& c, const std::vector<std::pair<std::string, const Optimizer*>>& sections,
                    const std::function<void(const Checkpoint&)>& write) const {
  if (ranks_ == nullptr) return write(c);
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
                                       told_by_first(*ranks_, static_cast<double>(i));
                                       return gather_part(*ranks_, parts[i]);
                                     }};
    write(c);
    told_by_first(*ranks_, kDone);
    return;
  }
  for (double asked = told_by_first(*ranks_, 0); asked != kDone; asked = told_by_first(*ranks_, 0))
    gather_part(*ranks_, parts[static_cast<std::size_t>(asked)]);
}

}  // namespace heed::detail

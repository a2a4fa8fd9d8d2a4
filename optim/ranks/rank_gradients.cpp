// The gradients of several ranks, whose exchanges overlap with computation.
#include <algorithm>
#include <cstring>
#include <heed/autograd/detail/tape_state.hpp>
#include <heed/core/profiler.hpp>
#include <heed/optim/ranks/rank_gradients.hpp>
#include <utility>

namespace heed::detail {
namespace {

// Items of a rank's stretches per bucket. At least kMinBucket, so that the bytes of a message take longer than its
// overhead. About kBuckets buckets, so that the first and the last one, with which nothing overlaps, are a small part
// of all.
constexpr Index kMinBucket = Index{1} << 16, kMaxBucket = Index{1} << 20, kBuckets = 16;
// Max buckets in progress: the link stays busy while one bucket is joined.
constexpr std::size_t kBucketsUnderWay = 4;

}  // namespace

RankGradients::RankGradients(ExchangeThread& exchanges, const ShardDivision& shards,
                             const std::vector<DividedOptimizer>& optimizers, DType communication)
    : exchanges_(exchanges),
      ranks_(exchanges.ranks()),
      shards_(shards),
      tree_(optimizers, communication),
      planned_(tree_.parameters().size()),
      values_(tree_.parameters().size()),
      progress_(tree_.parameters().size()) {
  for (const DividedOptimizer& o : optimizers) {
    first_[o.optimizer] = owners_.size();
    owners_.resize(owners_.size() + o.optimizer->trained_parameters().size(), &o);
  }
  for (int k = 1; k < ranks_.size(); ++k) others_.push_back((ranks_.rank() + k) % ranks_.size());
  for (int r = 0; r < ranks_.size(); ++r)
    shares_memory_.push_back(r != ranks_.rank() && !tree_.rounds() && ranks_.shares_memory_with(r));
  Index items = 0;  // items of a rank's stretches
  for (std::size_t i = 0; i < owners_.size(); ++i) {
    numbers_[trained(i).tensor.storage()] = i;
    values_[i].exchanges = &exchanges_;
    values_[i].storage = trained(i).tensor.storage();
    items += longest_stretch(i);
  }
  bucket_ = std::clamp(items / kBuckets / Chunks::kLongest * Chunks::kLongest, kMinBucket, kMaxBucket);
}

RankGradients::~RankGradients() {
  for (Values& v : values_) {
    Arrival* mine = &v;
    v.storage->arrival.compare_exchange_strong(mine, nullptr);
  }
}

void RankGradients::Values::wait() {
  const double begin = seconds_now();
  exchanges->wait(last);
  const std::lock_guard lock(mutex);
  for_each_chunk(added, [](const Added& a, Index first, Index n) { add_rounded(a.to + first, a.from + first, n); });
  added.clear();
  storage->arrival = nullptr;
  if (Profiler* profiler = mode().profiler) profiler->waited("waiting for values", begin, seconds_now());
}

void RankGradients::wait() {
  for (Values& v : values_)
    if (v.storage->arrival == &v) v.wait();
}

Index RankGradients::longest_stretch(std::size_t parameter) const {
  Index longest = 0;
  for (int r = 0; r < ranks_.size(); ++r) longest = std::max(longest, stretch_of(parameter, r).count());
  return longest;
}

Stretch RankGradients::piece_of(const Piece& piece, int rank) const {
  const Stretch& all = stretch_of(piece.parameter, rank);
  const Index begin = std::min(all.end, all.begin + piece.k * bucket_);
  return {begin, std::min(all.end, begin + bucket_)};
}

std::size_t RankGradients::bytes_sent(const Piece& piece, int rank) const {
  const DType sent = tree_.rounds() ? DType::bfloat16 : trained(piece.parameter).tensor.dtype();
  return static_cast<std::size_t>(piece_of(piece, rank).count()) * size_of(sent);
}

std::vector<MessageMemory::Place> RankGradients::places(MessageMemory& memory, const std::vector<Piece>& pieces,
                                                        int rank) const {
  std::vector<MessageMemory::Place> list;
  for (const Piece& p : pieces) list.push_back(memory.add(bytes_sent(p, rank)));
  return list;
}

void RankGradients::begin() {
  for (Progress& p : progress_) p.complete = p.anywhere = false;
  completed_.clear();
  buckets_.clear();
  started_ = joined_ = 0;
  add_buckets(plan_);
}

// Appends buckets for parameters whose gradients may not be complete.
void RankGradients::add_buckets(const std::vector<std::size_t>& parameters) {
  Index items = bucket_;  // in the last bucket
  for (const std::size_t i : parameters) {
    const Index longest = longest_stretch(i);
    Index k = 0;
    do {
      if (items >= bucket_) buckets_.emplace_back(), items = 0;
      Bucket& b = buckets_.back();
      b.pieces.push_back({i, k});
      if (!progress_[i].complete) ++b.awaited;
      items += std::min(bucket_, longest - k * bucket_);
    } while (++k * bucket_ < longest);
  }
}

void RankGradients::watch(Tape& tape) {
  tape.state().completed = [this](const Tensor& parameter) { complete(parameter); };
}

void RankGradients::complete(const Tensor& parameter) {
  const auto number = numbers_.find(parameter.storage());
  if (number == numbers_.end()) return;
  const ProfileScope scope("ranks");
  completed_.push_back(number->second);
  take(number->second);
  advance(false);
}

void RankGradients::take(std::size_t parameter) {
  Progress& p = progress_[parameter];
  if (std::exchange(p.complete, true)) return;
  p.sum = tree_.take_sum(parameter);
  p.here = p.sum.defined();
  for (std::size_t b = started_; b < buckets_.size(); ++b)
    for (const Piece& piece : buckets_[b].pieces)
      if (piece.parameter == parameter) --buckets_[b].awaited;
}

// Starts the buckets that are complete, and joins those that have arrived. `to_the_end`: waits until all are joined.
void RankGradients::advance(bool to_the_end) {
  exchanges_.poll();
  while (joined_ < buckets_.size()) {
    while (started_ < buckets_.size() && started_ - joined_ < kBucketsUnderWay && buckets_[started_].awaited == 0)
      start(buckets_[started_++]);
    if (joined_ == started_) return;
    Bucket& b = buckets_[joined_];
    if (to_the_end)
      exchanges_.wait(b.exchange);
    else if (!exchanges_.done(b.exchange))
      return;
    join(b);
    ++joined_;
  }
}

void RankGradients::finish() {
  const ProfileScope scope("ranks");
  for (std::size_t i = 0; i < progress_.size(); ++i) take(i);
  tree_.clear();
  advance(true);
  exchange_rest();
  await_readers();
  for (std::size_t i = 0; i < progress_.size(); ++i) {
    ParameterInfo& info = trained(i).info();
    require(!info.has_gradient, "run: ", trained(i).name, " got a gradient from an op that does not have it as ",
            "an input, after the last op that has; ranks may have summed the gradient before; make it an input of ",
            "that op");
    info.has_gradient = progress_[i].anywhere;
    progress_[i].sum = Tensor();
  }
  profile_exchanges();
}

// Reports the exchanges since the gradients of the last step arrived: the values of that step, and the gradients of
// this step.
void RankGradients::profile_exchanges() {
  const std::vector<ExchangeThread::Busy> busy = exchanges_.take_busy();
  Profiler* const profiler = mode().profiler;
  if (profiler == nullptr) return;
  for (const auto& [channel, begin, end, bytes] : busy)
    if (channel == ExchangeThread::gradients || channel == ExchangeThread::values)
      profiler->concurrent(channel == ExchangeThread::values ? "values" : "gradients", begin, end,
                           static_cast<double>(bytes));
}

// Exchanges the parameters that are not planned, if any rank has a gradient.
void RankGradients::exchange_rest() {
  std::vector<std::size_t> rest;
  std::string mine;
  for (std::size_t i = 0; i < planned_.size(); ++i) {
    if (planned_[i]) continue;
    rest.push_back(i);
    mine += progress_[i].here ? '1' : '0';
  }
  if (rest.empty()) return;
  const std::vector<std::string> has = all_gather(ranks_, mine);
  std::vector<std::size_t> next;
  for (std::size_t k = 0; k < rest.size(); ++k)
    if (is_anywhere(has, k)) next.push_back(rest[k]);
  if (plan_.empty() && !next.empty()) {
    // The plan is the order of gradients on rank 0. Other ranks have another order only if their batches differ.
    std::string order(reinterpret_cast<const char*>(completed_.data()), completed_.size() * sizeof(std::size_t));
    order = all_gather(ranks_, order)[0];
    std::vector<std::size_t> first(order.size() / sizeof(std::size_t));
    std::memcpy(first.data(), order.data(), order.size());
    for (const std::size_t i : next) planned_[i] = true;
    for (const auto* list : {&first, &next})
      for (const std::size_t i : *list)
        if (planned_[i] && std::find(plan_.begin(), plan_.end(), i) == plan_.end()) plan_.push_back(i);
    next = plan_;
  }
  add_buckets(next);
  advance(true);
}

void RankGradients::apply(Optimizer& o, double gradient_scale) {
  const ProfileScope scope("optimizer");
  RoundedStep step(o, gradient_scale, tree_.rounds());
  for (auto b = buckets_.rbegin(); b != buckets_.rend(); ++b) apply(*b, o, step);
  for (Values& v : values_)
    if (std::exchange(v.sent, false)) v.storage->arrival = &v;
  step.end();
}

void RankGradients::apply(const Bucket& b, const Optimizer& o, const RoundedStep& step) {
  const int me = ranks_.rank();
  Chunks chunks;
  std::vector<Piece> stepped;
  for (const Piece& p : b.pieces) {
    if (!progress_[p.parameter].anywhere || owners_[p.parameter]->optimizer != &o) continue;
    if (step.has_work(index_of(p.parameter))) chunks.add(static_cast<int>(stepped.size()), piece_of(p, me).count());
    stepped.push_back(p);
  }
  if (stepped.empty()) return;
  // In bfloat16, the changes of each rank's step need memory. Otherwise values are sent and received in place.
  const auto memory = std::make_shared<MessageMemory>();
  std::vector<std::vector<MessageMemory::Place>> added;  // [rank][piece]
  for (int r = 0; r < ranks_.size() && tree_.rounds(); ++r) added.push_back(places(*memory, stepped, r));
  if (tree_.rounds()) memory->allocate();
  const auto added_by = [&](int r, std::size_t i) {  // null if values are sent in place
    return tree_.rounds() ? memory->at<bfloat16>(added[static_cast<std::size_t>(r)][i]) : nullptr;
  };
  Messages all;
  for (std::size_t i = 0; i < stepped.size(); ++i) {
    const Piece& p = stepped[i];
    const Tensor& value = trained(p.parameter).tensor;
    const void* const outgoing =
        tree_.rounds() ? static_cast<void*>(added_by(me, i)) : address_of(value, piece_of(p, me).begin);
    for (const int r : others_) {
      const Stretch theirs = piece_of(p, r);
      void* incoming = address_of(value, theirs.begin);
      if (tree_.rounds()) {
        values_[p.parameter].added.push_back({memory, added_by(r, i), static_cast<float*>(incoming), theirs.count()});
        incoming = added_by(r, i);
      }
      all.send(r, outgoing, bytes_sent(p, me));
      all.receive(r, incoming, bytes_sent(p, r));
    }
  }
  chunks.run([&](Index, const Chunk& c) {
    const auto i = static_cast<std::size_t>(c.parameter);
    const Piece& p = stepped[i];
    bfloat16* const to_send = tree_.rounds() ? added_by(me, i) + c.begin : nullptr;
    const Index begin = piece_of(p, me).begin + c.begin;
    step.update({static_cast<int>(index_of(p.parameter)), begin, c.count}, to_send);
  });
  const ExchangeThread::Ticket exchange = exchanges_.add(std::move(all), ExchangeThread::values);
  for (const Piece& p : stepped) {
    Values& v = values_[p.parameter];
    v.last = exchange, v.sent = true;
  }
}

}  // namespace heed::detail

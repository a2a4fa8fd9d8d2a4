// Batches, windows of tokens for language models, and the thread that builds batches ahead.
#include <algorithm>
#include <heed/core/names.hpp>
#include <heed/core/random.hpp>
#include <heed/data/batches.hpp>

namespace heed {
namespace {

// Random streams reserved for batches.
constexpr std::uint64_t kBatchStream = std::uint64_t{0xBA7C4} << 44;

void check_options(const TokenSource& tokens, const WindowOptions& o) {
  require(o.batch > 0 && o.context > 0, "batches: batch is ", o.batch, " and context is ", o.context,
          "; both must be positive");
  require(tokens.size() > o.context, "batches: ", o.name, " has ", tokens.size(), " tokens; a context of ", o.context,
          " needs at least ", o.context + 1, " (give more text, a shorter context or another validation fraction)");
}

std::vector<Index> find_all(const TokenSource& tokens, std::int32_t token) {
  std::vector<Index> found;
  Tokens piece;
  for (Index begin = 0; begin < tokens.size(); begin += static_cast<Index>(piece.size())) {
    piece.resize(static_cast<std::size_t>(std::min<Index>(tokens.size() - begin, 1 << 16)));
    tokens.read(begin, piece);
    for (std::size_t i = 0; i < piece.size(); ++i)
      if (piece[i] == token) found.push_back(begin + static_cast<Index>(i));
  }
  return found;
}

// Fills one row: T inputs from `start` on and the token after each.
void fill_row(const TokenSource& tokens, Index start, Batch& b, Index row) {
  const Index T = b.inputs.dim(1);
  b.counted += T;
  tokens.read(start, {b.inputs.ptr<std::int32_t>() + row * T, static_cast<std::size_t>(T)});
  tokens.read(start + 1, {b.targets.ptr<std::int32_t>() + row * T, static_cast<std::size_t>(T)});
}

// Null if the batch has no defined tensor of this name.
const Tensor* find(const Batch& b, std::string_view name) {
  if (name == "inputs" || name == "targets") {
    const Tensor& x = name == "inputs" ? b.inputs : b.targets;
    return x.defined() ? &x : nullptr;
  }
  const auto found = b.others.find(name);
  return found != b.others.end() && found->second.defined() ? &found->second : nullptr;
}

Batch empty_batch(Index rows, Index context) {
  return {Tensor::empty({rows, context}, DType::int32), Tensor::empty({rows, context}, DType::int32), 0};
}

}  // namespace

void detail::check_index(const char* what, Index i, Index size) {
  require(i >= 0 && i < size, what, " ", i, " is out of range; there are ", size);
}

Tensor& Batch::operator[](std::string_view name) {
  if (name == "inputs") return inputs;
  if (name == "targets") return targets;
  return others.try_emplace(std::string(name)).first->second;
}

bool Batch::has(std::string_view name) const { return find(*this, name) != nullptr; }

const Tensor& Batch::at(std::string_view name) const {
  if (const Tensor* found = find(*this, name); found != nullptr) return *found;
  std::vector<std::string> names = {"inputs", "targets"};
  for (const auto& [other, x] : others) names.push_back(other);
  std::erase_if(names, [&](const std::string& other) { return !has(other); });
  fail("batch: there is no tensor ", name, "; ",
       names.empty() ? "the batch is empty" : "it must be one of " + detail::joined(names));
}

Index Batch::read() const {
  if (tokens > 0) return tokens;
  return inputs.defined() && inputs.dtype() == DType::int32 ? inputs.numel() : counted;
}

detail::RowOrder detail::RowOrder::continued(const std::vector<BatchesRead>& read) const {
  RowOrder next = *this;
  for (const BatchesRead& r : read) {
    const std::uint64_t rows = rows_of(r.batching);
    if (&r == &read.front()) next.first_rows_ = rows;
    next.begin_ += r.count * rows;
  }
  return next;
}

bool Batch::has_token_targets() const {
  if (!targets.defined() || targets.dtype() != DType::int32 || targets.rank() < 2) return false;
  return inputs.defined() ? inputs.dtype() == DType::int32 && inputs.shape() == targets.shape() : tokens > 0;
}

Index Batch::samples() const {
  for (const Tensor* x : {&inputs, &targets})
    if (x->defined() && x->rank() > 0) return x->dim(0);
  return counted;
}

LanguageModelBatches::LanguageModelBatches(TokenSource tokens, WindowOptions options)
    : tokens_(std::move(tokens)), options_(options), order_(batching()) {
  check_options(tokens_, options_);
  if (!options_.separator) return;
  std::vector<Index> all = find_all(tokens_, *options_.separator);
  std::erase_if(all, [&](Index s) { return s + options_.context >= tokens_.size(); });
  require(!all.empty(), "batches: no separator (token ", *options_.separator, ") is followed by ", options_.context,
          " tokens; each window must start at a separator");
  separators_ = std::make_shared<const std::vector<Index>>(std::move(all));
}

Batch LanguageModelBatches::batch(std::uint64_t seed, std::uint64_t step) const {
  Batch b = empty_batch(options_.batch, options_.context);
  for (Index row = 0; row < options_.batch; ++row) {
    const auto [stream, place] = order_.place(step, row);
    Rng rng(seed, kBatchStream + stream);
    rng.set_position(place << 16);  // room for draws that integer() rejects
    const Index i = rng.integer(windows());
    fill_row(tokens_, separators_ ? (*separators_)[static_cast<std::size_t>(i)] : i, b, row);
  }
  return b;
}

LanguageModelBatches LanguageModelBatches::continued(const std::vector<BatchesRead>& read) const {
  LanguageModelBatches next = *this;
  next.order_ = order_.continued(read);
  return next;
}

WholeSplit::WholeSplit(TokenSource tokens, WindowOptions options) : tokens_(std::move(tokens)), options_(options) {
  check_options(tokens_, options_);
  const Index T = options_.context, last = tokens_.size() - 1 - T;
  const std::vector<Index> separators =
      options_.separator ? find_all(tokens_, *options_.separator) : std::vector<Index>();
  std::vector<std::pair<Index, Index>> starts;
  for (Index start = 0, first = 0; start <= last;) {
    starts.emplace_back(start, first);
    first = start + T;
    const auto after = std::upper_bound(separators.begin(), separators.end(), first);
    const Index before = after == separators.begin() ? -1 : after[-1];
    start = before > start ? before : first;  // a piece longer than the context is continued without its beginning
  }
  starts_ = std::make_shared<const std::vector<std::pair<Index, Index>>>(std::move(starts));
}

Batch WholeSplit::batch(Index i) const {
  detail::check_index("batches: batch", i, size());
  const Index begin = i * options_.batch, rows = std::min(options_.batch, windows() - begin);
  Batch b = empty_batch(rows, options_.context);
  for (Index row = 0; row < rows; ++row) {
    const auto [start, first] = (*starts_)[static_cast<std::size_t>(begin + row)];
    fill_row(tokens_, start, b, row);
    std::int32_t* targets = b.targets.ptr<std::int32_t>() + row * options_.context;
    std::fill(targets, targets + (first - start), kIgnoreIndex);
    b.counted -= first - start;
  }
  return b;
}

Index WholeSplit::counted_end(Index batches) const {
  require(batches >= 0 && batches <= size(), "batches: the first ", batches, " batches are out of range; there are ",
          size());
  const Index rows = batches == 0 ? windows() : std::min(batches * options_.batch, windows());
  return (*starts_)[static_cast<std::size_t>(rows) - 1].first + options_.context + 1;
}

Prefetch::Prefetch(Dataset data) : data_(std::move(data)), thread_([this] { work(); }) {}

Prefetch::~Prefetch() {
  {
    const std::lock_guard lock(mutex_);
    state_ = State::stopping;
  }
  changed_.notify_all();
  thread_.join();
}

void Prefetch::work() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] { return state_ == State::requested || state_ == State::stopping; });
    if (state_ == State::stopping) return;
    const std::uint64_t seed = seed_, step = step_;
    lock.unlock();
    Batch made;
    std::exception_ptr error;
    try {
      made = data_.batch(seed, step);
    } catch (...) {
      error = std::current_exception();
    }
    lock.lock();
    if (state_ == State::stopping) return;
    batch_ = std::move(made);
    error_ = std::move(error);
    state_ = State::ready;
    changed_.notify_all();
  }
}

void Prefetch::request(std::unique_lock<std::mutex>& lock, std::uint64_t seed, std::uint64_t step) {
  changed_.wait(lock, [&] { return state_ != State::requested; });  // one request at a time
  seed_ = seed;
  step_ = step;
  state_ = State::requested;
  changed_.notify_all();
}

Batch Prefetch::batch(std::uint64_t seed, std::uint64_t step) {
  std::unique_lock lock(mutex_);
  if (state_ == State::idle || seed_ != seed || step_ != step) request(lock, seed, step);
  changed_.wait(lock, [&] { return state_ == State::ready; });
  if (error_) {
    state_ = State::idle;
    std::rethrow_exception(std::exchange(error_, nullptr));
  }
  Batch b = std::move(batch_);
  const bool first = in_row_ == 0;
  if (first || step == last_ + 1) {
    if (++in_row_ > row_) row_ = 0;
  } else {
    row_ = std::exchange(in_row_, 1);
    jump_ = step - last_;
  }
  last_ = step;
  request(lock, seed, in_row_ == row_ ? step + jump_ : step + 1);
  return b;
}

}  // namespace heed

// The data of a run: batches, fingerprints, and the number of batches read.
#include <algorithm>
#include <cmath>
#include <heed/data/detail/content_hash.hpp>
#include <heed/data/text.hpp>
#include <heed/optim/run/data.hpp>

namespace heed::detail {
namespace {

// Names in a checkpoint: two texts, and the tensor of batches that were read, float64 [batchings, 3] with rows, tokens
// and number of batches.
constexpr const char *kTraining = "training_data", *kValidation = "validation_data", *kRead = "history/batches";

void add(ContentHash& hash, const Batch& batch) {
  hash.add(batch.inputs), hash.add(batch.targets);
  for (const auto& [name, tensor] : batch.others) hash.add(name), hash.add(tensor);
  hash.add(&batch.counted, sizeof batch.counted);
}

std::string text_of(const Batching& b) {
  const std::string rows = b.rows > 0 ? std::to_string(b.rows) + " rows" : "";
  const std::string tokens = b.tokens > 0 ? std::to_string(b.tokens) + " tokens" : "";
  return rows + (rows.empty() || tokens.empty() ? "" : " and ") + tokens;
}

std::uint64_t counter_or(const Checkpoint& c, const char* name, Index other) {
  const auto found = c.counters.find(name);
  return found == c.counters.end() ? static_cast<std::uint64_t>(other) : found->second;
}

}  // namespace

RunData::RunData(Dataset data, const EvaluationSet& validation, const RunOptions& options)
    : options_(options), data_(std::move(data)), evaluation_(validation) {}

std::uint64_t RunData::first_batch_of(Index step) const {
  return first_batch_ + static_cast<std::uint64_t>((step - first_step_) * options_.shards * options_.accumulate);
}

Batch RunData::batch(Index step, std::uint64_t shard, std::uint64_t i) {
  if (!prefetch_) prefetch_ = std::make_unique<Prefetch>(data_);
  return prefetch_->batch(options_.seed,
                          first_batch_of(step) + shard * static_cast<std::uint64_t>(options_.accumulate) + i);
}

const std::string& RunData::training() const {
  if (!training_.empty()) return training_;
  if (const auto fingerprint = data_.fingerprint()) return training_ = *fingerprint;
  ContentHash hash;
  for (const std::uint64_t i : {0, 1}) add(hash, data_.batch(options_.seed, i));
  return training_ = "data whose first batches have the hash " + hash.hex();
}

const std::string& RunData::validation() const {
  if (!validation_.empty()) return validation_;
  const Index size = evaluation_.size();
  if (size == 0) return validation_ = "none";
  if (const auto fingerprint = evaluation_.fingerprint()) return validation_ = *fingerprint;
  ContentHash hash;
  for (Index i = 0; i < std::min<Index>(size, 2); ++i) add(hash, evaluation_.batch(i));
  return validation_ = std::to_string(size) + " batches, of which the first have the hash " + hash.hex();
}

void RunData::store(Checkpoint& c, Index done) const {
  c.texts[kTraining] = training();
  c.texts[kValidation] = validation();
  std::vector<double> numbers;
  const auto add_read = [&numbers](const Batching& b, std::uint64_t count) {
    for (const double n : {static_cast<double>(b.rows), static_cast<double>(b.tokens), static_cast<double>(count)})
      numbers.push_back(n);
  };
  for (const BatchesRead& r : read_) add_read(r.batching, r.count);
  add_read(data_.batching(), first_batch_of(done));
  c.tensors[kRead] = Tensor::from(numbers, {static_cast<Index>(numbers.size()) / 3, 3});
}

bool RunData::resume(const Checkpoint& c, Index done, std::vector<std::string>& changes) {
  // Whether the data of the checkpoint differ from the data of this run.
  const auto others = [&](const char* name, const char* what, const std::string& here) {
    const auto saved = c.texts.find(name);
    if (saved == c.texts.end() || saved->second == here) return false;
    const bool none = here == "none" || saved->second == "none";
    require(none || options_.checkpoint.other_data, "resume: the ", what, " data of ", c.source, " are ",
            printable(saved->second), " but those of this run are ", here,
            "; they must be the same unless CheckpointOptions::other_data (--other-data) is set");
    changes.push_back(std::string(what) + " data: " + here + ", before: " + printable(saved->second));
    return true;
  };
  if (c.texts.count(kTraining) == 0) changes.push_back("the checkpoint does not say which data it was trained on");
  const bool other_training = others(kTraining, "training", training());
  const bool other_validation = others(kValidation, "validation", validation());
  first_step_ = done;
  if (other_training) return other_validation;  // reads these data from the beginning
  const Batching here = data_.batching();
  if (c.tensors.count(kRead) == 0) {  // an older file
    first_batch_ = static_cast<std::uint64_t>(done) * counter_or(c, "shards", options_.shards) *
                   counter_or(c, "accumulate", options_.accumulate);
    return other_validation;
  }
  read_ = batches_read(c);
  if (read_.back().batching == here) {
    first_batch_ = read_.back().count;
    read_.pop_back();
  } else {
    changes.push_back("batches of " + text_of(here) + ", before: " + text_of(read_.back().batching));
  }
  if (!read_.empty()) data_ = data_.continued(read_);
  return other_validation;
}

}  // namespace heed::detail

namespace heed {

std::vector<BatchesRead> batches_read(const Checkpoint& c) {
  const Tensor& x = c.tensor(detail::kRead);
  require(x.rank() == 2 && x.dim(1) == 3 && x.dtype() == DType::float64 && x.dim(0) > 0, "resume: ", detail::kRead,
          " of ", c.source, " is ", x, "; it must be float64 [batchings, 3]");
  std::vector<BatchesRead> read;
  for (Index i = 0; i < x.dim(0); ++i) {
    const std::vector<double> row = x[i].to_vector<double>();
    for (const double n : row)
      require(n >= 0 && n <= 0x1p53 && n == std::floor(n), "resume: ", detail::kRead, " of ", c.source, " holds ", n,
              "; it must hold whole numbers, 0 or more");
    read.push_back({{static_cast<Index>(row[0]), static_cast<Index>(row[1])}, static_cast<std::uint64_t>(row[2])});
  }
  return read;
}

}  // namespace heed

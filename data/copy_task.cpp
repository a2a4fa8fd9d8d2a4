// The copy task.
#include <algorithm>
#include <heed/core/check.hpp>
#include <heed/core/random.hpp>
#include <heed/data/tasks.hpp>

namespace heed {
namespace {

// Random streams reserved for this task, for training and held-out rows.
constexpr std::uint64_t kCopyTraining = std::uint64_t{0xC09A0} << 44, kCopyHeldOut = std::uint64_t{0xC09A1} << 44;

}  // namespace

CopyTask::CopyTask(CopyTaskOptions options) : options_(options), order_(batching()) {
  require(options_.batch > 0 && options_.symbols > 0, "copy task: batch is ", options_.batch, " and symbols is ",
          options_.symbols, "; both must be 1 or more");
  require(options_.length >= 4 && options_.length % 2 == 0, "copy task: the length is ", options_.length,
          "; it must be even and 4 or more");
}

Batch CopyTask::batch(std::uint64_t seed, std::uint64_t step) const {
  const Index rows = options_.batch, T = options_.length, n = copied();
  Batch b{Tensor::empty({rows, T}, DType::int32), Tensor::full({rows, T}, kIgnoreIndex, DType::int32), rows * n};
  for (Index row = 0; row < rows; ++row) {
    const auto [stream, place] = order_.place(step, row);
    Rng rng(seed, (options_.held_out ? kCopyHeldOut : kCopyTraining) + stream);
    rng.set_position(place << 16);  // room for draws that integer() rejects
    std::int32_t* tokens = b.inputs.ptr<std::int32_t>() + row * T;
    tokens[0] = tokens[T / 2] = kSeparator;
    for (Index i = 1; i <= n; ++i) tokens[i] = static_cast<std::int32_t>(1 + rng.integer(options_.symbols));
    std::copy(tokens + 1, tokens + 1 + n, tokens + T / 2 + 1);
    std::copy(tokens + T / 2 + 1, tokens + T, b.targets.ptr<std::int32_t>() + row * T + T / 2);
  }
  return b;
}

std::string CopyTask::fingerprint() const {
  return "copy task of " + std::to_string(options_.length) + " tokens and " + std::to_string(options_.symbols) +
         " symbols" + (options_.held_out ? ", held out" : "");
}

CopyTask CopyTask::continued(const std::vector<BatchesRead>& read) const {
  CopyTask next = *this;
  next.order_ = order_.continued(read);
  return next;
}

}  // namespace heed

// How the optimizers' passes are split: a flat list of stretches of all parameters, gathered into tasks, so that many
// tiny parameters cost one parallel_for and large ones are shared out. Internal.
#pragma once
#include <algorithm>
#include <heed/core/parallel.hpp>
#include <heed/optim/parameter_group.hpp>
#include <vector>

namespace heed::detail {

struct Chunk {
  int parameter;  // position in the list of parameters
  Index begin;
  Index count;  // at most Chunks::kLongest
};

class Chunks {
 public:
  // 16384 items are some 450 kB of traffic in AdamW, 15 microseconds.
  static constexpr Index kLongest = 16384;

  void clear() {
    chunks_.clear();
    tasks_.clear();
    room_ = 0;
  }
  void add(int parameter, Index numel) {
    for (Index begin = 0; begin < numel; begin += kLongest) {
      const Index count = std::min(kLongest, numel - begin);
      if (room_ < count) {
        tasks_.push_back(static_cast<Index>(chunks_.size()));
        room_ = kLongest;
      }
      room_ -= count;
      chunks_.push_back({parameter, begin, count});
    }
  }

  Index size() const { return static_cast<Index>(chunks_.size()); }
  const Chunk& operator[](Index i) const { return chunks_[static_cast<std::size_t>(i)]; }

  // f(chunk number, chunk) for all chunks, many at once.
  template <class F>
  void run(F&& f) const {
    const Index tasks = static_cast<Index>(tasks_.size());
    parallel_for(tasks, 1, [&](Index first, Index last) {
      const Index end = last < tasks ? tasks_[static_cast<std::size_t>(last)] : size();
      for (Index i = tasks_[static_cast<std::size_t>(first)]; i < end; ++i) f(i, (*this)[i]);
    });
  }

 private:
  std::vector<Chunk> chunks_;
  std::vector<Index> tasks_;  // the first chunk of each
  Index room_ = 0;            // items that the last task still takes
};

// The gradient of a parameter that has one.
inline const Tensor& gradient_of(const Trained& p) { return p.info().gradient; }

}  // namespace heed::detail

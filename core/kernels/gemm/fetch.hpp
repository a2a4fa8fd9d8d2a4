// Prefetches rows into the cache while products run. Included only by *.kernel.cpp.
#pragma once

namespace heed::kernels::HEED_LEVEL {

// Rows of other matrices to prefetch into L2, some with each register tile of a product. Rows that are a page apart
// would otherwise each cause a wait at their first use.
class Fetch {
 public:
  Fetch() = default;
  explicit Fetch(long rows_per_tile) : rows_per_tile_(rows_per_tile) {}

  // n elements of each of `rows` rows, `stride` elements apart.
  template <class T>
  void to_read(const T* row, long stride, long rows, long n) {
    add(row, stride * static_cast<long>(sizeof(T)), rows, n * static_cast<long>(sizeof(T)), false);
  }
  template <class T>
  void to_write(const T* row, long stride, long rows, long n) {
    add(row, stride * static_cast<long>(sizeof(T)), rows, n * static_cast<long>(sizeof(T)), true);
  }
  // Spreads all rows over `tiles` calls of prefetch_next(), with at least `rows` rows per call.
  void spread(long tiles, long rows = 1);
  void prefetch_next();
  bool is_done() const { return at_ == count_; }

 private:
  static constexpr int kMaxParts = 9;
  struct Part {
    const char* row;
    long stride, rows, bytes;
    bool write;
  };
  Part parts_[kMaxParts];
  int count_ = 0, at_ = 0;
  long rows_per_tile_ = 4;

  void add(const void* row, long stride, long rows, long bytes, bool write) {
    if (row != nullptr && rows > 0 && count_ < kMaxParts)
      parts_[count_++] = {static_cast<const char*>(row), stride, rows, bytes, write};
  }
};

inline void Fetch::spread(long tiles, long rows) {
  long all = 0;
  for (int i = 0; i < count_; ++i) all += parts_[i].rows;
  const long each = (all + tiles - 1) / (tiles > 0 ? tiles : 1);
  rows_per_tile_ = each > rows ? each : rows;
}

[[gnu::noinline]] inline void Fetch::prefetch_next() {
  for (long left = rows_per_tile_; left > 0 && at_ < count_;) {
    Part& part = parts_[at_];
    const long rows = part.rows < left ? part.rows : left, stride = part.stride, bytes = part.bytes;
    const char* row = part.row;
    for (long i = 0; i < rows; ++i, row += stride) {
      if (part.write)
        for (long byte = 0; byte < bytes; byte += 64) __builtin_prefetch(row + byte, 1);
      else
        for (long byte = 0; byte < bytes; byte += 64) __builtin_prefetch(row + byte, 0, 2);
    }
    part.row = row, part.rows -= rows, left -= rows;
    if (part.rows == 0) ++at_;
  }
}

}  // namespace heed::kernels::HEED_LEVEL

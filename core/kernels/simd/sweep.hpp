// Loops over rows of any width: whole vectors, then one masked tail. Included only by *.kernel.cpp, after simd.hpp.
#pragma once

namespace heed::kernels::HEED_LEVEL {

// Whole and Part load and store at one position of a sweep. `fill` is the value of lanes beyond the end. load_as()
// reads memory of another type, with zeros beyond the end. store_rounded() writes bf16.
struct Whole {
  template <class T>
  Batch<T> load(const T* p, T = T(0)) const {
    return HEED_LEVEL::load(p);
  }
  template <class T, class S>
  Batch<T> load_as(const S* p) const {
    return HEED_LEVEL::load_as<T>(p);
  }
  template <class T>
  void store(T* p, Batch<T> v) const {
    HEED_LEVEL::store(p, v);
  }
  void store_rounded(uint16_t* p, Batch<float> v) const { store_bf16(p, v); }
  template <class T>
  Batch<T> keep(Batch<T> v, Batch<T> = Batch<T>(T(0))) const {
    return v;
  }
};

struct Part {
  int n;
  template <class T>
  Batch<T> load(const T* p, T fill = T(0)) const {
    return load_part(p, n, fill);
  }
  template <class T, class S>
  Batch<T> load_as(const S* p) const {
    return load_as_part<T>(p, n);
  }
  template <class T>
  void store(T* p, Batch<T> v) const {
    store_part(p, v, n);
  }
  void store_rounded(uint16_t* p, Batch<float> v) const { store_bf16_part(p, v, n); }
  template <class T>
  Batch<T> keep(Batch<T> v, Batch<T> other = Batch<T>(T(0))) const {  // the lanes beyond the end are those of `other`
    return select(first_lanes<T>(n), v, other);
  }
};

// *p = v, or *p += v if `add`, at a position of a sweep.
template <class T>
inline void store_or_add(auto at, T* p, Batch<T> v, bool add) {
  at.store(p, add ? at.load(p) + v : v);
}

// Calls f(i, at) for i = 0, w, 2w, ... below n. `at` is Whole or, for the tail, Part.
template <class T, class F>
inline void sweep(int64_t n, F f) {
  int64_t i = 0;
  for (; i + kWidth<T> <= n; i += kWidth<T>) f(i, Whole{});
  if (i < n) f(i, Part{static_cast<int>(n - i)});
}

}  // namespace heed::kernels::HEED_LEVEL

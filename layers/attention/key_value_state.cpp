#include <algorithm>
#include <heed/layers/attention/key_value_state.hpp>

namespace heed {

// Room for `length` positions: the capacity doubles, so that a token costs no copy of the others.
static void grow(Tensor& cache, const Tensor& like, Index used, Index length) {
  if (cache.defined() && cache.dim(2) >= length) return;
  const Index capacity = std::max<Index>(length, cache.defined() ? 2 * cache.dim(2) : 64);
  Tensor larger = Tensor::empty({like.dim(0), like.dim(1), capacity, like.dim(3)}, like.dtype());
  if (used > 0) {
    Tensor front = larger.slice(2, 0, used);
    detail::copy_values(front, cache.slice(2, 0, used));
  }
  cache = larger;
}

// Whether x [B, Hk, T, D] may follow what the cache holds.
static bool follows(const Tensor& cache, In x) {
  return !cache.defined() || (cache.dtype() == x.dtype() && cache.shape().with(2, 0) == x.shape().with(2, 0));
}

Tensor KeyValueState::apply(In q, In k, In v, const Tensor& bias) {
  check(k.rank() == 4 && v.rank() == 4 && k.shape().first(3) == v.shape().first(3), k.where(), "KeyValueState: k is ",
        k.tensor(), " and v is ", v.tensor(), "; they must be [batch, heads, positions, size], alike but for the size");
  check(follows(keys_, k) && follows(values_, v), k.where(), "KeyValueState: k is ", k.tensor(), " and v is ",
        v.tensor(), " but the cache holds ", keys_, " and ", values_, "; all but the positions must stay the same");
  const Index before = length(), length = before + k.dim(2);
  grow(keys_, k, before, length);
  grow(values_, v, before, length);
  Tensor new_keys = keys_.slice(2, before, length), new_values = values_.slice(2, before, length);
  detail::copy_values(new_keys, k);
  detail::copy_values(new_values, v);
  const NoTape guard;  // decoding is not trained through
  const Tensor y = attend_(q, keys_.slice(2, 0, length), values_.slice(2, 0, length), bias);
  length_ = Tensor::full({}, static_cast<double>(length), DType::int32);  // last: what is refused changes nothing
  return y;
}

}  // namespace heed

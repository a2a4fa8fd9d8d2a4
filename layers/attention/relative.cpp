// Vectors of relative positions, learned and sinusoidal, and their decode state.
#include <heed/autograd/elementwise.hpp>
#include <heed/layers/attention/detail/compositions.hpp>
#include <heed/layers/attention/relative.hpp>
#include <heed/layers/attention/states.hpp>
#include <heed/layers/embedding.hpp>

namespace heed {

AttentionCapabilities detail::relative_capabilities(const RelativeVectorsOptions& options) {
  AttentionCapabilities can = AttentionCapabilities::of_places({.documents = true});
  can.why = "keys and values depend on their distance from the query";
  can.weights = !options.of_values;
  return can;
}

RelativeVectorsOptions detail::checked_relative(const char* name, Index size, RelativeVectorsOptions o, Index usual) {
  if (o.max_distance == 0) o.max_distance = usual;
  if (o.value_size == 0) o.value_size = size;
  require(size > 0 && o.value_size > 0 && o.max_distance > 0 && o.max_distance < Index{1} << 24, name, ": size is ",
          size, ", value_size is ", o.value_size, " and max_distance is ", o.max_distance,
          "; all must be 1 or more, and max_distance below 2^24");
  require(o.of_keys || o.of_values, name, ": of_keys and of_values are false; one of them must be true");
  return o;
}

static RelativeVectors in_dtype(const RelativeVectors& vectors, DType dtype) {
  const auto to = [&](const Tensor& x) { return x.defined() ? x.to(dtype) : x; };
  return {to(vectors.keys), to(vectors.values), {}};
}

AttentionState detail::relative_state(const RelativeVectors& vectors) {
  return KeyValueState([vectors](In q, In k, In v, const AttentionCall& call) {
    RelativeVectors at = in_dtype(vectors, q.dtype());
    // If rows have different lengths, the only query of a row is its last position.
    if (call.key_lengths.defined() && q.dim(2) == 1) at.positions = maximum(call.key_lengths - 1.0, 0.0);
    return relative_attention(q, k, v, at, call);
  });
}

// ---- Learned ----

ShawAttention::ShawAttention(Exactly<Index> size, Rng& rng, const RelativeVectorsOptions& options)
    : options_(detail::checked_relative("ShawAttention", size, options, 16)) {
  const Index rows = 2 * options_.max_distance + 1;
  if (options_.of_keys) keys = detail::uniform_parameter({rows, size}, size, rng);
  if (options_.of_values) values = detail::uniform_parameter({rows, options_.value_size}, options_.value_size, rng);
}

// ---- Sinusoidal ----

// The vectors of distances from -clip to clip, float64 [2 clip + 1, size]. Sines change their sign with the distance.
static Tensor sinusoids(Index clip, Index size) {
  const Tensor after = sinusoidal_positions(clip + 1, size, DType::float64);
  Tensor table = Tensor::empty({2 * clip + 1, size}, DType::float64);
  for (Index d = -clip; d <= clip; ++d)
    for (Index c = 0; c < size; ++c) {
      const double x = after.ptr<double>()[(d < 0 ? -d : d) * size + c];
      table.ptr<double>()[(d + clip) * size + c] = d < 0 && c % 2 == 0 ? -x : x;
    }
  return table;
}

NezhaAttention::NezhaAttention(Exactly<Index> size, const RelativeVectorsOptions& options)
    : options_(detail::checked_relative("NezhaAttention", size, options, 64)) {
  if (options_.of_keys) keys_ = sinusoids(options_.max_distance, size);
  if (options_.of_values) values_ = sinusoids(options_.max_distance, options_.value_size);
}

Tensor NezhaAttention::apply(In q, In k, In v, const AttentionCall& call) const {
  return relative_attention(q, k, v, in_dtype({keys_, values_, {}}, q.dtype()), call);
}

AttentionState NezhaAttention::make_state() const { return detail::relative_state({keys_, values_, {}}); }

}  // namespace heed

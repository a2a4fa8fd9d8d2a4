// Wrong mechanisms with faults in states after several steps and picks.
#include <heed/heed.hpp>

#include "tests/layers/attention/faults.hpp"

using namespace heed;
using namespace heed::test;

namespace {

using Call = AttentionCall;

// A correct state with one fault. Counts its steps and picks.
struct Faulty {
  enum class Kind {
    second_pick,
    pick_of_as_many,
    repeated_values,
    beyond_600,
    fourth_row,
    no_position,
    no_position_clears,
    many_ragged,
    equal_while_ragged,
    cleans,
    view,
    first_key,
    chunk_after_pick,
    bfloat16_step,
    pick_beyond_100
  };
  Kind kind;
  Index picks = 0;
  Tensor last = {};
  KeyValueState inner{[](In q, In k, In v, const Call& c) { return Fused{}.apply(q, k, v, c); }};

  Tensor apply(In q_in, In k_in, In v_in, Call call) {
    Tensor q = q_in, k = k_in, v = v_in;
    const Tensor before = inner.lengths();
    const Index longest = detail::longest_of(before), T = q.dim(2), B = q.dim(0);
    const bool ragged = before.numel() > 0 && detail::shortest_of(before) < longest;
    const bool none = call.key_lengths.defined() && detail::longest_of(call.key_lengths) == 0;
    if (kind == Kind::no_position && none) call.key_lengths = {};
    if (kind == Kind::no_position && none) k = Tensor::ones(k.shape(), k.dtype()), v = k.slice(3, 0, v.dim(3));
    if (kind == Kind::no_position_clears && none) {
      inner = Faulty{kind}.inner;
      return Tensor::zeros(q.shape().with(3, v.dim(3)), q.dtype());
    }
    if (kind == Kind::many_ragged && ragged && T > 1 && B > 4) v = v * 1.01;
    if (kind == Kind::equal_while_ragged && ragged && T > 1 && !call.key_lengths.defined()) v = flip(v, {2});
    if (kind == Kind::fourth_row && B > 3) {
      v = v.contiguous().clone();
      v.slice(0, 3, 4).copy_(v.slice(0, 2, 3));
    }
    if (kind == Kind::cleans && call.key_lengths.defined() && k.dtype() == DType::float32)
      for (Tensor* x : {&k, &v}) x->copy_(where(isfinite(*x), *x, 0.0));
    if (kind == Kind::chunk_after_pick && picks > 0 && T > 60) v = v * 1.01;
    if (kind == Kind::bfloat16_step && q.dtype() == DType::bfloat16 && T == 1 && longest > 5)
      v = (v.to(DType::float32) * 1.5).to(v.dtype());
    Tensor y = inner.apply(q, k, v, call);
    if (kind == Kind::beyond_600 && longest > 600) y = y * 1.01;
    if (kind == Kind::first_key && ragged && picks > 1) y = y * 1.01;
    if (kind == Kind::pick_beyond_100 && picks > 1 && longest > 100) y = y * 1.01;
    if (kind == Kind::view) {
      if (!last.defined() || last.shape() != y.shape() || last.dtype() != y.dtype()) last = y.clone();
      last.copy_(y);
      return last;
    }
    return y;
  }
  const Tensor& lengths() const { return inner.lengths(); }
  Faulty rows(const Tensor& indices) const {
    Faulty picked = *this;
    ++picked.picks;
    const Tensor lengths = inner.lengths();
    const bool ragged = detail::shortest_of(lengths) < detail::longest_of(lengths);
    Tensor chosen = indices;
    if (kind == Kind::second_pick && picks > 0) chosen = rolled(indices);
    if (kind == Kind::pick_of_as_many && ragged && indices.numel() == lengths.numel())
      chosen = Tensor::arange(indices.numel());
    picked.inner = pick_rows(inner, chosen);
    if (kind == Kind::repeated_values && indices.numel() > lengths.numel() && picks > 0) {
      std::vector<NamedBuffer> buffers = named_buffers(picked.inner);
      *buffers[2].buffer = rolled(*buffers[2].buffer);
    }
    return picked;
  }
  void members(auto&& visit) {
    inner.members(visit);
    if (kind == Kind::view) visit.buffer("last", last);
  }
};

Fault<FusedHooks> state(const char* what, Faulty::Kind kind, const char* check = "state programs", Index longest = 60) {
  return {what, check, [kind](FusedHooks& h) { h.state = [kind] { return AttentionState(Faulty{kind}); }; }, longest};
}

const std::vector<Fault<FusedHooks>> kStates = {
    state("the second pick is in another order", Faulty::Kind::second_pick),
    state("a pick of as many ragged rows is ignored", Faulty::Kind::pick_of_as_many),
    state("values of repeated rows", Faulty::Kind::repeated_values),
    state("more than 600 positions", Faulty::Kind::beyond_600, "state programs", 700),
    state("the fourth row", Faulty::Kind::fourth_row),
    state("a step in which no row has a position adds one", Faulty::Kind::no_position),
    state("a step in which no row has a position clears the state", Faulty::Kind::no_position_clears),
    state("several positions of more than four ragged rows", Faulty::Kind::many_ragged),
    state("as many positions for each of ragged rows", Faulty::Kind::equal_while_ragged),
    state("NaN of the caller's padding become 0", Faulty::Kind::cleans),
    state("all outputs are one tensor", Faulty::Kind::view),
    state("ragged rows that were picked twice", Faulty::Kind::first_key),
    state("a chunk after a pick", Faulty::Kind::chunk_after_pick, "state programs", 700),
    state("single positions in bfloat16", Faulty::Kind::bfloat16_step, "bfloat16"),
    state("picked twice, beyond 100 positions", Faulty::Kind::pick_beyond_100, "state programs", 700),
};

}  // namespace

TEST_CASE("conformance zoo: states in the course of several steps and picks") { find<Fused>(kStates); }

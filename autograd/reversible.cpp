// reversible(): residual blocks whose inputs are computed from their results in backward.
//
// Both streams are one tensor s = [x1; x2] of shape [2, ...]. A block is one step of the tape, which keeps no part of
// s. Only the step of the last block keeps its result. In backward, a step takes its result from `Relay` and leaves its
// input there for the step before it, which runs next.
#include <algorithm>
#include <heed/autograd/detail/rerun.hpp>
#include <heed/autograd/elementwise.hpp>
#include <heed/autograd/reversible.hpp>
#include <heed/autograd/shape_ops.hpp>
#include <memory>

namespace heed {
namespace {

using Relay = std::shared_ptr<Tensor>;

// Sums of float64 are exact if the terms are multiples of 2^-36 and the sums are below 2^17, as doubles have 53 bits.
constexpr double kExactBelow = 1 << 17;

// x as a term of a stream: float64, in multiples of 2^-36, which is the distance of doubles from 2^16 to 2^17. Streams
// of a float64 model are not rounded.
Tensor on_grid(const Tensor& x) {
  constexpr double kShift = 1.5 * (1 << 16);
  return x.dtype() == DType::float64 ? x : x.to(DType::float64) + kShift - kShift;
}

// A block, and how its parts are called.
struct BlockRun {
  ReversibleBlock parts;
  DType dtype;  // of the inputs and results of f and g
  Where where;

  // f or g of an input in `dtype`.
  Tensor apply(char name, const Tensor& x) const {
    const Tensor y = (name == 'f' ? parts.f : parts.g)(x);
    check(y.defined() && y.shape() == x.shape() && y.dtype() == dtype, where, "reversible: the result of ", name,
          " is ", y, " and its input is ", x, "; shape and dtype must be the same");
    return y;
  }
  // Without a tape.
  Tensor operator()(const Tensor& s) const {
    const Tensor y1 = s.select(0, 0) + on_grid(apply('f', s.select(0, 1).to(dtype)));
    return stack({y1, s.select(0, 1) + on_grid(apply('g', y1.to(dtype)))}, 0, where);
  }
};

// The first run of f or g: what the second run repeats.
struct FirstPart {
  char name;
  detail::RunConditions conditions = {};
  std::uint64_t hash = 0;  // of the result; 0 in a float64 model, whose second run has other roundings

  // The term that is added to the other stream, from h, float64.
  Tensor run(const BlockRun& block, const Tensor& h, detail::FirstRun& first_run, bool& reads_parameters) {
    const Tensor y = detail::run_unrecorded(first_run, [&] { return block.apply(name, h.to(block.dtype)); });
    reads_parameters = reads_parameters || y.is_unrecorded();
    if (block.dtype != DType::float64) hash = detail::hash_of_values(y);
    const NoTape guard;
    return on_grid(y);
  }
};

bool is_exact(const Tensor& s) {
  const std::vector<double> values = s.to_vector<double>();
  return std::ranges::all_of(values, [](double v) { return v > -kExactBelow && v < kExactBelow; });
}

// The second run, in backward. Returns the term again. From dy, the gradient of the term, adds the gradient of h to dh.
// s: the result of the block.
Tensor second_run(const BlockRun& block, const FirstPart& first, const Tensor& h, const Tensor& dy, const Tensor& s,
                 Tensor& dh) {
  const Tensor input = h.to(block.dtype);
  Tensor y, gradient;
  {
    Tape tape({.find_nan = first.conditions.find_nan});
    const Tensor x = tape.watch(input);
    const Tensor result = detail::run_again(first.conditions, [&] { return block.apply(first.name, x); });
    if (result.node() != 0) {
      tape.backward(result, dy);
      gradient = tape.grad(x);
    }
    y = result.detach();
  }
  check(block.dtype == DType::float64 || detail::hash_of_values(y) == first.hash || !is_exact(s), block.where,
        "reversible: ", first.name, " returned another result when it ran again, ", y, ", so gradients would belong ",
        "to that result; it must compute the same twice: draw random numbers from default_rng()");
  if (gradient.defined()) dh = dh + gradient.detach().to(dh.dtype());
  return on_grid(y);
}

// Backward of y1 = x1 + f(x2), y2 = x2 + g(y1), with s = [y1; y2] in the relay, which is set to [x1; x2]:
//   x2 = y2 - g(y1);  d1 = dy1 + g'(y1) dy2;  x1 = y1 - f(x2);  dx1 = d1, dx2 = dy2 + f'(x2) d1
void backward_block(Grads& d, const Tensor& dy, const BlockRun& block, const FirstPart& f, const FirstPart& g,
                    Tensor& relay) {
  const Tensor s = std::exchange(relay, Tensor()), y1 = s.select(0, 0);
  Tensor d1 = dy.select(0, 0), d2 = dy.select(0, 1);
  const Tensor x2 = s.select(0, 1) - second_run(block, g, y1, d2, s, d1);
  const Tensor x1 = y1 - second_run(block, f, x2, d1, s, d2);
  relay = stack({x1, x2}, 0, block.where);
  if (d.needs(0)) d.add(0, stack({d1, d2}, 0, block.where));
}

// One block as a step of the tape. `last`: the step keeps its result.
Tensor record_block(const BlockRun& block, const Tensor& s, const Relay& relay, bool last) {
  detail::FirstRun first_run{.find_nan = detail::mode().tape->state().options.find_nan, .read = {}};
  bool reads_parameters = false;
  const Tensor before = s.detach(), x2 = before.select(0, 1);
  FirstPart f{'f'};
  const Tensor added1 = f.run(block, x2, first_run, reads_parameters);
  const Tensor y1 = [&] {
    const NoTape guard;
    return before.select(0, 0) + added1;
  }();
  FirstPart g{'g'};
  const Tensor added2 = g.run(block, y1, first_run, reads_parameters);
  Tensor y = [&] {
    const NoTape guard;
    return stack({y1, x2 + added2}, 0, block.where);
  }();
  // Keeps the tensors from outside that f and g read, but not their input.
  std::erase_if(first_run.read, [&](const detail::SavedTensor& kept) { return kept.tensor.shares_storage(s); });
  if (last) first_run.read.push_back(detail::save(y));
  auto backward = [block, f, g, relay, last](Grads& d, const Tensor& dy, const std::vector<Tensor>& kept) {
    if (last) *relay = kept.back();
    backward_block(d, dy, block, f, g, *relay);
  };
  detail::record_step("reversible", block.where, y, Inputs({In(s, block.where)}), reads_parameters,
                      detail::SavedList{std::move(first_run.read)}, std::move(backward));
  return y;
}

}  // namespace

Tensor reversible(const std::vector<ReversibleBlock>& blocks, In x1, In x2) {
  const DType dtype = x1.dtype();
  check(is_floating(dtype) && x2.dtype() == dtype && x1.shape() == x2.shape(), x1.where(), "reversible: x1 is ",
        x1.tensor(), " and x2 is ", x2.tensor(), "; they must be floating, with the same shape and dtype");
  Tensor s = on_grid(stack({x1.tensor(), x2.tensor()}, 0, x1.where()));
  const bool records = detail::mode().tape != nullptr && !detail::mode().suspended;
  const Relay relay = std::make_shared<Tensor>();
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    const BlockRun block{blocks[i], dtype, x1.where()};
    s = records ? record_block(block, s, relay, i + 1 == blocks.size()) : block(s);
  }
  return s.to(dtype);
}

}  // namespace heed

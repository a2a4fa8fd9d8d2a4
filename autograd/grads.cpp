// Where derivatives write: in the gradient of the whole value (the root) that an input is part of, or in separate
// memory.
#include <algorithm>
#include <heed/autograd/detail/tape_state.hpp>

namespace heed {

using detail::InputRef;
using detail::kNoNode;

namespace {

struct Axis {
  Index size, stride;
};

// The axes of a view that have more than one element, widest stride first.
struct Layout {
  std::array<Axis, kMaxRank> axes;
  int rank = 0;

  explicit Layout(const InputRef& ref) {
    for (int i = 0; i < ref.shape.rank(); ++i)
      if (ref.shape[i] != 1) axes[static_cast<std::size_t>(rank++)] = {ref.shape[i], ref.strides[i]};
    std::sort(axes.begin(), axes.begin() + rank, [](const Axis& a, const Axis& b) { return a.stride > b.stride; });
  }
  Index extent(int from) const {  // elements spanned by the axes from `from` on
    Index e = 1;
    for (int i = from; i < rank; ++i)
      e += (axes[static_cast<std::size_t>(i)].size - 1) * axes[static_cast<std::size_t>(i)].stride;
    return e;
  }
};

bool repeats_elements(const InputRef& ref) {
  for (int i = 0; i < ref.shape.rank(); ++i)
    if (ref.shape[i] > 1 && ref.strides[i] == 0) return true;
  return false;
}

// Whether two views of one value certainly have no element in common. They must share their outer axes. Within one step
// of these axes, one view must end before the other begins, as in the thirds of a fused query, key and value.
bool disjoint(const InputRef& a, const InputRef& b) {
  const InputRef& low = a.offset <= b.offset ? a : b;
  const InputRef& high = a.offset <= b.offset ? b : a;
  const Layout l(low), h(high);
  const Index distance = high.offset - low.offset;
  for (int outer = 0; outer <= std::min(l.rank, h.rank); ++outer) {
    if (outer > 0) {
      const Axis p = l.axes[static_cast<std::size_t>(outer - 1)], q = h.axes[static_cast<std::size_t>(outer - 1)];
      if (p.size != q.size || p.stride != q.stride) return false;
      if (distance + h.extent(outer) > p.stride) continue;
    }
    if (l.extent(outer) <= distance) return true;
  }
  return false;
}

// The inputs of a step, as bits, that together cover the root of input i, each element once; 0 if they do not. Their
// derivatives may overwrite a root without a gradient, which then need not be zeroed first.
std::uint64_t tiles_of_root(std::span<const InputRef> inputs, std::size_t i, Index root_size) {
  std::uint64_t tiles = 0;
  Index size = 0;
  for (std::size_t j = 0; j < inputs.size() && j < 64; ++j) {
    if (inputs[j].node != inputs[i].node) continue;
    tiles |= std::uint64_t{1} << j;
    size += inputs[j].shape.numel();
    if (size > root_size || repeats_elements(inputs[j])) return 0;
  }
  if (size != root_size || inputs.size() > 64) return 0;
  for (std::size_t j = 0; j < inputs.size(); ++j)
    for (std::size_t k = 0; k < j; ++k)
      if ((tiles >> j & 1u) && (tiles >> k & 1u) && !disjoint(inputs[j], inputs[k])) return 0;
  return tiles;
}

void check_gradient(const Tape::State& s, const detail::Step& step, const Tensor& gradient) {
  if (!s.options.find_nan) return;
  std::vector<const Tensor*> from = {&s.nodes[step.output].gradient};
  for (const detail::SavedTensor& kept : step.saved()) from.push_back(&kept.tensor);
  detail::check_finite(gradient, step.op, "a gradient", step.where, std::string(detail::module_of(s, step)), from);
}

// Adds the gradient g of an expanded view to its root: sums over the repeated axes, then adds to the element itself.
void add_to_repeated(Tape::State& s, const InputRef& ref, const Tensor& g) {
  const detail::Node& n = s.nodes[ref.node];
  InputRef once = ref;
  for (int a = 0; a < once.shape.rank(); ++a)
    if (once.strides[a] == 0) once.shape[a] = 1;
  const bool written = s.is_written(ref.node);
  Tensor& root = s.gradient_of(ref.node);
  if (!written)
    root.zero_();
  else if (!n.parameter.defined() && root.storage()->references > 1)
    root = root.clone();
  Tensor part = root.as_strided(once.shape, once.strides, once.offset);
  detail::add_values(part, detail::sum_to(g, once.shape));
  s.set_written(ref.node);
}

}  // namespace

Grads::Grads(detail::Step& step, Tape& tape) : step_(step), tape_(tape) { tape.state().unfilled = 0; }

void Grads::finish() {
  for (int i = 0; i < pending_count_; ++i) {
    Pending& p = pending_[static_cast<std::size_t>(i)];
    check_gradient(tape_.state(), step_, p.gradient);
    add_now(p.input, p.gradient);
    p.gradient = Tensor();
  }
  for (int i = 0; tape_.state().unfilled != 0; ++i)  // parts that the derivative did not write
    if (tape_.state().unfilled >> i & 1u) target(i).gradient.zero_();
}

bool Grads::needs(int i) const {
  const std::size_t count = step_.inputs.size();
  check(i >= 0 && static_cast<std::size_t>(i) < count, step_.where, step_.op, ": gradient of input ", i,
        "; the op has ", count, count == 1 ? " input" : " inputs", ", counted from 0");
  return step_.inputs[static_cast<std::size_t>(i)].node != kNoNode;
}

void Grads::add(int i, const Tensor& gradient) {
  if (!needs(i)) return;
  check_gradient(tape_.state(), step_, gradient);
  if (handed_out_ == 0) return add_now(i, gradient);
  require(pending_count_ < kPending, step_.op, ": add: more than ", kPending,
          " gradients in addition to those written in place");
  pending_[static_cast<std::size_t>(pending_count_++)] = {i, gradient};
}

void Grads::add_later(int i, std::function<Tensor()> gradient) {
  if (!needs(i)) return;
  Tape::State& s = tape_.state();
  const Tensor& parameter = s.nodes[step_.inputs[static_cast<std::size_t>(i)].node].parameter;
  std::optional<std::size_t> reader;
  if (s.completed && parameter.defined()) reader = s.last_reader(parameter);
  if (!reader) return add(i, gradient());
  s.late.push_back({*reader, &step_, i, std::move(gradient)});
}

void Grads::add_now(int i, const Tensor& gradient) {
  const InputRef& ref = step_.inputs[static_cast<std::size_t>(i)];
  Tape::State& s = tape_.state();
  detail::Node& n = s.nodes[ref.node];
  Shape both;
  check(gradient.defined() && is_floating(gradient.dtype()) && broadcast(ref.shape, gradient.shape(), both) &&
            both == gradient.shape(),
        step_.where, step_.op, ": the gradient of input ", i, " is ", gradient,
        "; it must be floating and have the input's shape, ", ref.shape, ", or one that this broadcasts to");
  const Tensor g = gradient.shape() == ref.shape ? gradient : detail::sum_to(gradient, ref.shape);
  const bool whole = ref.shape.numel() == n.shape.numel() && !repeats_elements(ref);
  const bool written = s.is_written(ref.node);
  // Computed before backward, already in the parameter's memory (gradient_memory).
  if (!written && whole && n.parameter.defined() &&
      g.storage() == n.parameter.storage()->parameter->gradient.storage())
    return s.set_written(ref.node);
  if (!written && whole && ref.offset == 0 && !n.parameter.defined() && g.dtype() == n.dtype && g.is_contiguous() &&
      ref.strides == contiguous_strides(ref.shape) && g.offset() == 0) {
    n.gradient = g.view(n.shape);  // taken over; copied before a write if it is shared
    n.written = true;
    return;
  }
  if (repeats_elements(ref)) return add_to_repeated(s, ref, g);
  const Target t = target(i);
  Tensor into = t.gradient;
  if (t.accumulate)
    detail::add_values(into, g);
  else
    detail::copy_values(into, g);
}

// The input's part of the root's gradient, in place.
Target Grads::target(int i) {
  const InputRef& ref = step_.inputs[static_cast<std::size_t>(i)];
  Tape::State& s = tape_.state();
  const detail::Node& n = s.nodes[ref.node];
  const bool whole = ref.shape.numel() == n.shape.numel();
  Tensor& root = s.gradient_of(ref.node);
  const bool written = s.is_written(ref.node);
  // Other holders of the gradient must not see the change, so it is copied. Targets of this step in it must stay valid.
  bool given = false;
  for (int j = 0; j < static_cast<int>(step_.inputs.size()) && j < 64; ++j)
    given = given || (j != i && (handed_out_ >> j & 1u) && step_.inputs[static_cast<std::size_t>(j)].node == ref.node);
  if (written && !given && !n.parameter.defined() && root.storage()->references > 1) root = root.clone();
  if (!written && !whole) {
    const std::uint64_t tiles = tiles_of_root(step_.inputs, static_cast<std::size_t>(i), root.numel());
    s.unfilled |= tiles;
    if (tiles == 0) root.zero_();
  }
  const bool holds = i < 64 && (s.unfilled >> i & 1u) ? false : written || !whole;
  if (i < 64) s.unfilled &= ~(std::uint64_t{1} << i);
  s.set_written(ref.node);
  return {root.as_strided(ref.shape, ref.strides, ref.offset), holds};
}

// Whether a derivative may write input i's gradient in place, together with the targets handed out before.
bool Grads::writes_in_place(int i) const {
  const InputRef& ref = step_.inputs[static_cast<std::size_t>(i)];
  if (repeats_elements(ref) || i >= 64 || tape_.state().options.find_nan) return false;
  for (int j = 0; j < static_cast<int>(step_.inputs.size()) && j < 64; ++j) {
    const InputRef& other = step_.inputs[static_cast<std::size_t>(j)];
    if ((handed_out_ >> j & 1u) && other.node == ref.node && !disjoint(ref, other)) return false;
  }
  return true;
}

// Separate memory for input i's gradient; finish() adds it.
Target Grads::aside(int i) {
  require(pending_count_ < kPending, step_.op, ": more than ", kPending, " gradients that cannot be written in place");
  const InputRef& ref = step_.inputs[static_cast<std::size_t>(i)];
  const Tensor gradient = Tensor::empty(ref.shape, tape_.state().nodes[ref.node].dtype);
  pending_[static_cast<std::size_t>(pending_count_++)] = {i, gradient};
  return {gradient, false};
}

Target Grads::strided(int i) {
  if (!needs(i)) return {};
  if (!writes_in_place(i)) return aside(i);
  handed_out_ |= std::uint64_t{1} << i;
  return target(i);
}

Target Grads::dense(int i) {
  if (!needs(i)) return {};
  const InputRef& ref = step_.inputs[static_cast<std::size_t>(i)];
  const bool contiguous = Tensor().as_strided(ref.shape, ref.strides, 0).is_contiguous();
  return contiguous ? strided(i) : aside(i);
}

}  // namespace heed

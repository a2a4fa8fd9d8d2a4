// linear_cross_entropy(): cross-entropy of a linear layer, with logits for one chunk of rows at a time.
#include <algorithm>
#include <heed/autograd/detail/cross_entropy_rows.hpp>
#include <heed/autograd/detail/products.hpp>
#include <heed/autograd/detail/tape_state.hpp>
#include <heed/core/kernels/reduce/norm.hpp>
#include <heed/core/parallel.hpp>

namespace heed {
namespace {

// Logits that exist at once (64 MB of float32). Each chunk reads the whole weight three times, so small chunks cost
// time: with 50257 classes and D = 768, chunks of 64 rows take 1.5 times as long as chunks of 256.
constexpr Index kChunk = Index{1} << 24;

struct Operands {
  detail::CrossEntropyRows rows;
  Tensor x, weight, bias;           // contiguous, except the weight
  Tensor targets, class_weight;     // contiguous
  DType dtype = DType::float32;     // of the logits
  DType products = DType::float32;  // bfloat16: products read the gradients of the logits in bfloat16 too
};

// The memory of a chunk: logits, later replaced by their gradients, and a bfloat16 copy of these if products need one.
struct Chunk {
  Tensor logits, narrow;

  // The gradients [rows, classes], as products read them.
  Tensor of_products(Index rows, Index classes) const {
    return narrow.defined() ? narrow.slice(0, 0, rows).slice(1, 0, classes) : logits.slice(0, 0, rows);
  }
};

// The memory for the gradients, and dy of the losses: one number per row, or one for all rows.
struct GradientTargets {
  Target x, weight, bias;
  Tensor dy;
  explicit operator bool() const { return x || weight || bias; }
};

template <class T>
void sum_columns(const Tensor& logits, Index rows, const Target& out, bool accumulate) {
  const Index classes = logits.dim(1);
  const auto f = kernels::of<T>(kernels::norm_table()).sum_rows;
  parallel_for(classes, 1024, [&](Index b, Index e) {
    f(logits.ptr<T>() + b, rows, e - b, classes, out.gradient.ptr<T>() + b, accumulate);
  });
}

// For the logits of one chunk of rows: computes their losses if `loss` is defined, and replaces them by their gradients
// if these are needed.
template <class T>
void run_rows(const Operands& o, Index begin, Index count, const Chunk& chunk, const Tensor& lse, const Tensor& loss,
              const GradientTargets& g) {
  const Index classes = o.rows.classes;
  const Tensor& logits = chunk.logits;
  const auto c = o.rows.of<T>(o.class_weight);
  const std::int32_t* targets = o.targets.ptr<std::int32_t>() + begin;
  parallel_for(count, grain_for(4 * classes), [&](Index b, Index e) {
    const auto& table = detail::cross_entropy_table<T>();
    T *row = logits.ptr<T>() + b * classes, *row_lse = lse.ptr<T>() + 2 * (begin + b);
    if (loss.defined()) table.forward(c, row, targets + b, loss.ptr<T>() + begin + b, row_lse, e - b);
    if (g) table.backward(c, row, targets + b, row_lse, o.rows.gradient<T>(g.dy, begin + b, row, false), e - b);
    if (g && chunk.narrow.defined()) {
      Tensor narrow = chunk.narrow.slice(0, b, e).slice(1, 0, classes);
      detail::copy_values(narrow, logits.slice(0, b, e));
    }
  });
}

// Runs one chunk of rows: computes its logits and, if `loss` is defined, their losses; replaces the logits by their
// gradients, and adds these to the gradients of x, weight and bias.
template <class T>
void run_chunk(const Operands& o, Index begin, Index count, const Chunk& chunk, const Tensor& lse, const Tensor& loss,
               const GradientTargets& g) {
  const Tensor x = o.x.slice(0, begin, begin + count), logits = chunk.logits.slice(0, 0, count);
  const Tensor dlogits = chunk.of_products(count, o.rows.classes);
  Gemm product = detail::product_of(x, o.weight.t(), logits, o.products);
  product.bias = o.bias.raw();
  gemm(product);
  run_rows<T>(o, begin, count, chunk, lse, loss, g);
  if (g.x) {
    const Tensor dx = g.x.gradient.view(o.x.shape()).slice(0, begin, begin + count);
    detail::product_gradient({dx, g.x.accumulate}, dlogits, o.weight, o.products);
  }
  if (g.weight)
    detail::product_gradient({g.weight.gradient, g.weight.accumulate || begin > 0}, dlogits.t(), x, o.products);
  if (g.bias) sum_columns<T>(logits, count, g.bias, g.bias.accumulate || begin > 0);
}

Index chunks_of(const Operands& o) {
  return std::max<Index>(1, (o.x.dim(0) * o.rows.classes + kChunk - 1) / kChunk);
}

// Runs all chunks. Their sizes depend on the shapes only. With no rows, one empty chunk zeroes the gradients. If
// gradients are needed, returns the gradients of the last chunk's logits, as products read them.
Tensor run(const Operands& o, const Tensor& lse, const Tensor& loss, const GradientTargets& g) {
  const Index n = o.x.dim(0), classes = o.rows.classes, chunks = chunks_of(o);
  const Index size = std::max<Index>(1, ((n + chunks - 1) / chunks + 7) / 8 * 8);
  const Index rows = std::min(size, n), line = (classes + 31) / 32 * 32;  // aligns pairs of bfloat16
  const Chunk chunk{Tensor::empty({rows, classes}, o.dtype),
                    g && o.products == DType::bfloat16 ? Tensor::empty({rows, line}, DType::bfloat16) : Tensor()};
  for (Index begin = 0; begin == 0 || begin < n; begin += size) {
    const Index count = std::min(size, n - begin);
    detail::with_float(o.dtype, [&]<class T>(T) { run_chunk<T>(o, begin, count, chunk, lse, loss, g); });
  }
  return chunk.of_products(rows, classes);
}

Operands check_operands(In x, In weight, In bias, In targets, const CrossEntropyOptions& options) {
  const char* op = "linear_cross_entropy";
  const Where& where = x.where();
  check(x->defined() && weight->defined() && detail::multiplies_weight(x.dtype(), weight), where, op, ": x is ",
        x.tensor(), " and weight is ", weight.tensor(),
        "; both must be float64, or each float32 or bfloat16, or the weight quantized, in whole rows");
  check(x.rank() > 0 && weight.rank() == 2 && x.dim(-1) == weight.dim(1), where, op, ": x is ", x.tensor(),
        " but weight is ", weight.tensor(), "; weight must be [C, D], where D is the last axis of x");
  const DType dtype = x.dtype() == DType::float64 ? DType::float64 : DType::float32;
  const Index classes = weight.dim(0), n = x.rows();
  check(!bias->defined() || (bias.shape() == Shape{classes} && bias.dtype() == dtype), where, op, ": weight is ",
        weight.tensor(), " but bias is ", bias.tensor(), "; it must be ", Shape{classes}, " ", dtype);
  check(targets->defined() && targets.shape() == x.shape().without(-1), where, op, ": x is ", x.tensor(),
        " but targets are ", targets.tensor(), "; targets must have the shape of x without its last axis");
  const Tensor t = targets->dense(), rows = detail::product_operand(x->dense().detach().view({n, x.dim(-1)}));
  return {detail::CrossEntropyRows(op, where, t, classes, dtype, options),
          rows,
          weight->detach(),
          bias->dense(),
          t,
          options.weight.dense(),
          dtype,
          detail::products_of(rows.dtype(), weight.dtype())};
}

// Multiplies a gradient of the loss by dy.
void scale(const Tensor& gradient, const Tensor& dy) {
  const double factor = dy.item();
  if (factor == 1) return;
  detail::with_float(gradient.dtype(), [&]<class T>(T) {
    parallel_for_each(gradient.numel(), grain_for(1),
                      [&, p = gradient.ptr<T>()](Index i) { p[i] *= static_cast<T>(factor); });
  });
}

// Passes on a gradient that forward computed. It is scaled in place: only this step holds it, and the step runs once.
void pass_on(Grads& d, int i, const Tensor& gradient, const Tensor& dy) {
  if (!gradient.defined()) return;
  scale(gradient, dy);
  d.add(i, gradient);
}

}  // namespace

// loss = cross_entropy(z), z = x W^T + b. With dz from cross_entropy: dx = dz W;  dW = dz^T x;  db = sum(dz).
// Computing the gradients with the loss takes three matrix products; computing z again in backward would take four.
Tensor linear_cross_entropy(In x, In weight, In bias, In targets, const CrossEntropyOptions& options) {
  const Operands o = check_operands(x, weight, bias, targets, options);
  const char* op = "linear_cross_entropy";
  note_reads({targets, options.weight});
  Tensor loss = Tensor::empty(targets.shape(), o.dtype), lse = Tensor::empty({targets.numel(), 2}, o.dtype);
  if (options.reduction == Reduction::none) {
    run(o, lse, loss, {});
    record(
        op, x.where(), loss, {x, weight, bias}, saved(o.x, o.weight, o.bias, o.targets, o.class_weight, lse),
        [rows = o.rows, products = o.products](Grads& d, const Tensor& dy, const Tensor& xs, const Tensor& w,
                                               const Tensor& b, const Tensor& t, const Tensor& cw, const Tensor& lses) {
          run({rows, xs, w, b, t, cw, dy.dtype(), products}, lses, {}, {d.dense(0), d.dense(1), d.dense(2), dy});
        });
    return loss;
  }
  const auto space = [&](const In& input) {
    return needs_gradient({input}) ? Target{detail::gradient_memory(input.tensor(), o.dtype), false} : Target{};
  };
  // The gradient of a tied weight is complete only after the embedding's derivative. So its product is computed later,
  // from the kept gradients of the logits, and does not delay the gradients of the layers.
  const bool later = detail::gradients_leave_early() && chunks_of(o) == 1 && needs_gradient({weight});
  const GradientTargets g = {space(x), later ? Target{} : space(weight), space(bias), Tensor::ones({}, o.dtype)};
  const Tensor dlogits = run(o, lse, loss, g);
  Tensor y = o.rows.reduce(loss, options.reduction);
  record(op, x.where(), y, {x, weight, bias},
         saved(g.x.gradient, g.weight.gradient, g.bias.gradient, later ? dlogits : Tensor(), later ? o.x : Tensor(),
               later ? o.weight : Tensor()),
         [products = o.products](Grads& d, const Tensor& dy, const Tensor& dx, const Tensor& dweight,
                                 const Tensor& dbias, const Tensor& dz, const Tensor& xs, const Tensor& w) {
           pass_on(d, 0, dx, dy);
           pass_on(d, 1, dweight, dy);
           pass_on(d, 2, dbias, dy);
           if (!dz.defined()) return;
           d.add_later(1, [=] {
             const Target dw{detail::gradient_memory(w, dy.dtype()), false};
             detail::product_gradient(dw, dz.t(), xs, products);
             scale(dw.gradient, dy);
             return dw.gradient;
           });
         });
  return y;
}

}  // namespace heed

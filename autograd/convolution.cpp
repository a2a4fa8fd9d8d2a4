// conv1d() and conv2d(): checks, the order of the axes in memory, and the tape. The work is in convolution_products.cpp
// and convolution_depthwise.cpp.
#include <algorithm>
#include <heed/autograd/convolution.hpp>
#include <heed/autograd/detail/convolution.hpp>
#include <heed/autograd/detail/products.hpp>

namespace heed {

using detail::Convolution;
using detail::Windows;

void detail::count_windows(const char* op, In x, const char* axis, Windows& w, Index after, bool ceil_mode) {
  constexpr Index kMax = Index{1} << 31;  // products of two such numbers do not overflow
  check(w.kernel > 0 && w.stride > 0 && w.dilation > 0 && w.kernel < kMax && w.stride < kMax && w.dilation < kMax,
        x.where(), op, ": along ", axis, " the kernel is ", w.kernel, ", the stride ", w.stride, " and the dilation ",
        w.dilation, "; they must be 1 or more, and below 2^31");
  check(w.before >= 0 && after >= 0 && w.before < kMax * kMax && after < kMax, x.where(), op, ": along ", axis,
        " the padding is ", std::min(w.before, after), "; it must be in [0, 2^31)");
  const Index padded = w.size + w.before + after, span = w.dilation * (w.kernel - 1) + 1;
  check(w.size == 0 || span <= padded, x.where(), op, ": x is ", x.tensor(), ", along ", axis, " the padding is ",
        w.before + after, " and a window spans ", span, "; it must not be longer than ", padded,
        ", the positions with their padding");
  if (w.size == 0) return void(w.count = 0);
  w.count = (padded - span + (ceil_mode ? w.stride - 1 : 0)) / w.stride + 1;
  if (ceil_mode && (w.count - 1) * w.stride >= w.size + w.before) --w.count;  // begins in the padding after x
}

Tensor detail::with_channels_last(const Tensor& x) {
  return x.rank() == 3 ? x.t().unsqueeze(1) : x.permute({0, 2, 3, 1});
}

Tensor detail::with_channels_first(const Tensor& x, int rank) {
  return rank == 3 ? x.squeeze(1).t() : x.permute({0, 3, 1, 2});
}

namespace {

// The arguments of a convolution, of both axes.
struct ConvolutionArguments {
  HeightWidth stride, padding, dilation;
  Index groups;
  bool causal = false;
  Tensor documents = {};
};

void check_convolution(const char* op, int rank, In x, In weight, In bias, Index groups) {
  const char *axes = rank == 3 ? "[N, C, L]" : "[N, C, H, W]",
             *filter = rank == 3 ? "[out, C / groups, K]" : "[out, C / groups, KH, KW]";
  check(x.rank() == rank && weight.rank() == rank, x.where(), op, ": x is ", x.tensor(), " and weight is ",
        weight.tensor(), "; they must be ", axes, " and ", filter);
  check(groups > 0 && x.dim(1) % groups == 0 && weight.dim(0) % groups == 0, x.where(), op, ": groups is ", groups,
        ", x is ", x.tensor(), " and weight is ", weight.tensor(),
        "; groups must divide the channels of x and the filters, axis 0 of weight");
  check(weight.dim(1) == x.dim(1) / groups, x.where(), op, ": x is ", x.tensor(), " and weight is ", weight.tensor(),
        "; axis 1 of weight must be ", x.dim(1) / groups, ", the channels of x divided by groups, ", groups);
  check(detail::multiply_together(x.dtype(), weight.dtype()), x.where(), op, ": x is ", x.tensor(), " and weight is ",
        weight.tensor(), "; both must be float64, or each float32 or bfloat16");
  const DType type = detail::product_type(x.dtype());
  check(!bias->defined() || (bias.shape() == Shape{weight.dim(0)} && bias.dtype() == type), x.where(), op,
        ": weight is ", weight.tensor(), " and bias is ", bias.tensor(), "; bias must be ", Shape{weight.dim(0)}, " ",
        type);
}

void check_documents(In x, In weight, const ConvolutionArguments& a) {
  const Tensor& d = a.documents;
  if (!d.defined()) return;
  check(a.causal && a.stride.w == 1 && a.groups == x.dim(1) && a.groups == weight.dim(0), x.where(),
        "conv1d: documents are given, causal is ", a.causal, ", the stride ", a.stride.w, ", groups is ", a.groups,
        ", x is ", x.tensor(), " and weight is ", weight.tensor(),
        "; with documents, causal must be true, the stride 1, and each group one channel and one filter");
  check(d.shape() == Shape{x.dim(0), x.dim(2)} && d.dtype() == DType::int32, x.where(), "conv1d: x is ", x.tensor(),
        " and documents is ", d, "; it must be ", Shape{x.dim(0), x.dim(2)}, " int32");
}

Convolution convolution_sizes(const char* op, In x, In weight, const ConvolutionArguments& a) {
  check(!a.causal || a.padding.w == 0, x.where(), op, ": causal is true and padding is ", a.padding.w,
        "; a causal convolution has its own padding, and padding must be 0");
  Convolution c{.batch = x.dim(0), .groups = a.groups, .channels = weight.dim(1), .filters = weight.dim(0) / a.groups};
  const Index kernel = weight.dim(-1);
  const Index before = a.causal ? a.dilation.w * (kernel - 1) : a.padding.w;
  c.w = {.size = x.dim(-1), .kernel = kernel, .stride = a.stride.w, .dilation = a.dilation.w, .before = before};
  detail::count_windows(op, x, x.rank() == 3 ? "L" : "W", c.w, a.causal ? 0 : a.padding.w);
  if (x.rank() == 3) return c;
  c.h = {
      .size = x.dim(2), .kernel = weight.dim(2), .stride = a.stride.h, .dilation = a.dilation.h, .before = a.padding.h};
  detail::count_windows(op, x, "H", c.h, a.padding.h);
  return c;
}

// A tensor [N, H, W, C] as a matrix of rows.
Tensor pixel_rows(const Tensor& x) { return x.view({x.rows(), x.dim(-1)}); }

// Rows of dy as the products of backward read them.
Tensor product_rows(const Tensor& dy, DType products) {
  return pixel_rows(dy).to(products == DType::bfloat16 ? products : dy.dtype());
}

Target pixel_target(Grads& d) {
  Target t = d.dense(0);
  if (t) t.gradient = pixel_rows(t.gradient);
  return t;
}

// y [N, H', W', out], recorded as an op on `last`, x as [N, H, W, C].
Tensor by_products(const char* op, const Convolution& c, In last, In weight, In bias, const Tensor&) {
  const DType type = detail::product_type(last.dtype());
  Tensor y = Tensor::empty({c.batch, c.h.count, c.w.count, c.outputs()}, type);
  const Tensor rows = pixel_rows(detail::product_operand(last->dense())), w = weight->detach();
  const DType products = detail::products_of(rows.dtype(), w.dtype());
  const Tensor b = bias->dense();
  detail::convolve(c, {rows, detail::filters_of(c, w), b, pixel_rows(y)}, false, products);
  record(op, last.where(), y, {last, weight, bias}, saved(needs_gradient({weight}) ? rows : Tensor(), w),
         [c, type, products](Grads& d, const Tensor& dy, const Tensor& x, const Tensor& filters) {
           const Tensor g = product_rows(dy, products);
           if (const Target dx = pixel_target(d)) detail::input_gradient(c, g, filters, dx, products);
           if (d.needs(1)) detail::weight_gradient(c, x, g, d.dense(1), products);
           if (d.needs(2)) d.add(2, detail::sum_to(pixel_rows(dy), {c.outputs()}).to(type));
         });
  return y;
}

// The same for one channel and one filter per group.
Tensor by_channels(const char* op, const Convolution& c, In last, In weight, In bias, const Tensor& documents) {
  const DType type = detail::product_type(last.dtype());
  Tensor y = Tensor::empty({c.batch, c.h.count, c.w.count, c.outputs()}, type);
  const Tensor rows = pixel_rows(detail::widened(last->detach()).dense());
  const Tensor w = detail::widened(weight->detach());
  const Tensor taps = w.dense().view({c.groups, c.taps()}).t().dense();  // [taps, C]
  const Tensor b = bias->dense(), starts = documents.dense();
  detail::depthwise(c, rows, taps, b, starts, pixel_rows(y));
  record(op, last.where(), y, {last, weight, bias}, saved(needs_gradient({weight}) ? rows : Tensor(), taps, starts),
         [c, type, shape = weight.shape()](Grads& d, const Tensor& dy, const Tensor& x, const Tensor& by_tap,
                                           const Tensor& begins) {
           const Tensor g = pixel_rows(dy);
           if (const Target dx = pixel_target(d)) detail::depthwise_input_gradient(c, g, by_tap, begins, dx);
           if (d.needs(1)) {
             const Tensor dtaps = Tensor::empty({c.taps(), c.groups}, type);
             detail::depthwise_taps_gradient(c, x, g, begins, dtaps);
             d.add(1, dtaps.t().dense().view(shape));
           }
           if (d.needs(2)) d.add(2, detail::sum_to(g, {c.outputs()}).to(type));
         });
  return y;
}

Tensor convolution(const char* op, int rank, In x, In weight, In bias, const ConvolutionArguments& a) {
  check_convolution(op, rank, x, weight, bias, a.groups);
  check_documents(x, weight, a);
  Convolution c = convolution_sizes(op, x, weight, a);
  c.by_channel = detail::suits_order_of_weight(c);
  const Tensor last = detail::with_channels_last(x);
  const auto compute = c.is_depthwise() || a.documents.defined() ? by_channels : by_products;
  const Tensor y = detail::with_channels_first(compute(op, c, {last, x.where()}, weight, bias, a.documents), rank);
  return detail::has_channels_last(x) ? y : y.contiguous();
}

}  // namespace

Tensor conv1d(In x, In weight, In bias, const Conv1dOptions& o) {
  const ConvolutionArguments a{o.stride, o.padding, o.dilation, o.groups, o.causal, o.documents};
  return convolution("conv1d", 3, x, weight, bias, a);
}

Tensor conv2d(In x, In weight, In bias, const Conv2dOptions& o) {
  return convolution("conv2d", 4, x, weight, bias, {o.stride, o.padding, o.dilation, o.groups});
}

}  // namespace heed

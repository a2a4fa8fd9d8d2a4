// Attention with the weights (q . k)^2, in linear time. Queries and keys are processed in chunks. Scores within a chunk
// are squared. Earlier chunks contribute a sum over their keys of features, which are the products of two elements.
//
// With f the features (core/kernels/linear_attention/products_of_two.hpp), for a chunk: S = sum f(k_j) v_j^T and
// z = sum f(k_j) over the keys before it, s_ij = q_i . k_j, G the gradient of O, H = G / d, u = -rowsum(H * O).
// P = sum f(q_i) H_i^T and r = sum u_i f(q_i) over the queries of later chunks:
//
//   A = tril(s^2)    d = A 1 + f(Q) z + eps    O = (A V + f(Q) S) / d
//   W = tril(2 s (H V^T + u 1^T))
//   dq = W K + f'(q)(H S^T + u z^T)    dk = W^T Q + f'(k)(V P^T + 1 r^T)    dV = A^T H + f(K) P
//
// Features and their sums are float64: f(q) . f(k) is a sum of terms of both signs, which may cancel almost entirely.
// Scores within a chunk have q's dtype. Without causal, all keys are before the queries.
#include <heed/autograd/detail/attention_inputs.hpp>
#include <heed/autograd/detail/poly2_attention.hpp>
#include <heed/autograd/detail/poly2_backward.hpp>
#include <heed/autograd/elementwise.hpp>
#include <heed/autograd/generic_attention.hpp>
#include <heed/autograd/shape_ops.hpp>

namespace heed::detail {
namespace poly2 {
namespace {

// ---- Forward ----

template <class T>
void queries_forward(const Problem<T>& p, const HeadRows<T>& out, double* norms, const double* state, Index b, Index g,
                     Index c) {
  const Plan& s = p.plan;
  const Range rows = s.queries_of(c);
  const Index columns = s.value_width;
  const bool earlier = s.has_earlier(c);
  Features x(s, false);
  Triangle<T> own(p, b, g, s.causal ? s.keys_of(s.prefix_chunks + c) : Range{0, 0}, false);
  const PackedMatrix sums = earlier ? PackedMatrix(by_row(state, columns), s.features, columns, DType::float64)
                                    : PackedMatrix();
  Scratch<double> num(static_cast<std::size_t>(kRows * columns));
  Scratch<T> own_num(static_cast<std::size_t>(kRows * columns));
  for (Index h = g * s.shared(); h < (g + 1) * s.shared(); ++h)
    for (Index i = 0; i < rows.count; i += kRows) {
      const Index n = std::min(kRows, rows.count - i), first = rows.first + i;
      double den[kRows] = {};
      T own_den[kRows] = {};
      std::fill_n(num.data(), n * columns, 0.0);
      std::fill_n(own_num.data(), n * columns, T(0));
      if (earlier) {
        x.load(p.q, b, h, first, n);
        sums.multiply_here({.m = n, .a = by_row(x.f.data(), s.features), .c = num.data(), .ldc = columns});
        product({n, 1, s.features}, by_row(x.f.data(), s.features), by_row(state + s.features * columns, 1), den, 1);
      }
      if (s.causal) {
        own.score(h, first, n, i);
        own.square(n, i, own_den);
        own.weigh_values(n, i, own_num.data());
      }
      for (Index r = 0; r < n; ++r) {
        const double sum = den[r] + static_cast<double>(own_den[r]), d = sum + p.eps, inverse = sum == 0 ? 0 : 1 / d;
        norms[(b * s.heads + h) * s.queries + first + r] = sum == 0 ? p.eps : d;
        T* to = row_of(out, b, h, first + r);
        for (Index j = 0; j < columns; ++j)
          to[j] = static_cast<T>((num[static_cast<std::size_t>(r * columns + j)] +
                                  static_cast<double>(own_num[static_cast<std::size_t>(r * columns + j)])) * inverse);
      }
    }
}

// The states before the chunks of queries, [batch * groups, states of queries, state_size].
template <class T>
Tensor states_before(const Problem<T>& p) {
  const Plan& s = p.plan;
  const Index groups = s.batch * s.groups, size = s.state_size();
  const Tensor all = Tensor::empty({groups, s.states(), size}, DType::float64);
  double* const data = all.ptr<double>();
  each_chunk(s, s.states() - 1, flops_of(s, s.prefix_chunk, 1), [&](Index b, Index g, Index i) {
    sum_keys(p, b, g, s.keys_of(i), data + ((b * s.groups + g) * s.states() + i) * size);
  });
  scan(data, groups, s.states(), size, false);
  return all.slice(1, s.prefix_chunks, s.states()).contiguous();
}

template <class T>
void forward(const Problem<T>& p, const HeadRows<T>& out, const Tensor& states, const Tensor& norms) {
  const Plan& s = p.plan;
  double* const norm = norms.ptr<double>();
  const Index kept = states.dim(1);
  clear_keyless(s, out, s.value_width);
  for (Index n = 0; n < s.batch * s.heads; ++n) std::fill_n(norm + n * s.queries, s.keyless, p.eps);
  each_chunk(s, s.query_chunks, flops_of(s, s.chunk * s.shared(), 1), [&](Index b, Index g, Index c) {
    const Index state = (b * s.groups + g) * kept + s.state_of_queries(c);
    queries_forward(p, out, norm, states.ptr<double>() + state * s.state_size(), b, g, c);
  });
}

template <class T>
Problem<T> problem_of(const Tensor& q, const Tensor& k, const Tensor& v, bool causal, double eps) {
  return {Plan(q, k, v, causal), rows_of<const T>(q), rows_of<const T>(k), rows_of<const T>(v), eps};
}

// ---- The choice ----

// Whether squaring all scores takes less time than chunks. Compares the products of both, weighted as measured, from
// the shapes only. Scores of pairs that causal excludes are computed too.
bool fewer_scores(const Tensor& q, const Tensor& k, const Tensor& v, bool causal) {
  const Plan p(q, k, v, causal);
  const Index pair = p.width + p.value_width, own = causal ? p.queries - p.keyless : 0,
              chunks = std::max<Index>(p.query_chunks, 1), kept = own - own / chunks,  // rows of all chunks but one
              rows = causal ? kept + (p.prefix > 0 ? own : kept) + p.prefix : p.queries + p.keys;
  return 10 * p.queries * p.keys * pair <= 11 * (rows * p.features * p.value_width + own * (own / chunks) / 2 * pair);
}

// Keys and values for which weights need no factor: exp(b) (q . k)^2 = (q . exp(b / 2) k)^2. They are expanded to all
// query heads, as b may be, and are zeros where b is -infinity.
void weigh_keys(In q, Tensor& k, Tensor& v, const Tensor& bias) {
  const Index batch = q.dim(0), heads = q.dim(1), keys = k.dim(2);
  const Tensor b = bias.expand({batch, heads, 1, keys}).transpose(2, 3);
  const Tensor none = b.detach() <= -kInfinity;
  const auto of_heads = [&](const Tensor& x) {
    const Index groups = x.dim(1), width = x.dim(3);
    const Tensor all = x.unsqueeze(2).expand({batch, groups, heads / std::max<Index>(groups, 1), keys, width});
    return masked_fill(all.reshape({batch, heads, keys, width}), none, 0);
  };
  k = of_heads(k) * exp(b * 0.5), v = of_heads(v);
}

}  // namespace
}  // namespace poly2

Tensor products_of_two(const Tensor& x) {
  const Tensor wide = x.detach().to(DType::float64).contiguous();
  const Index width = wide.dim(-1), features = kernels::products_of_width(width);
  Tensor y = Tensor::empty(wide.shape().without(-1) + Shape{features}, DType::float64);
  parallel_for(wide.rows(), grain_for(features), [&](Index begin, Index end) {
    kernels::products_of_two_table().forward(wide.ptr<double>() + begin * width, end - begin, width,
                                             y.ptr<double>() + begin * features);
  });
  return y;
}

Tensor poly2_by_features(In q, In k, In v, bool causal, double eps) {
  const AttentionInputs x = attention_inputs(q, k, v, {.causal = causal});
  Tensor y = attention_output(x), states;
  const Tensor norms = Tensor::empty({q.dim(0), q.dim(1), q.dim(2)}, DType::float64);
  with_float(q.dtype(), [&]<class T>(T) {
    const poly2::Problem<T> p = poly2::problem_of<T>(x.q, x.k, x.v, causal, eps);
    states = poly2::states_before(p);
    poly2::forward(p, rows_of<T>(y.transpose(1, 2)), states, norms);
  });
  record("linear_attention", q.where(), y, {x.q, x.k, x.v}, saved(x, y, states, norms),
         [causal, eps](Grads& grads, const Tensor& dy, const AttentionInputs& in, const Tensor& out,
                       const Tensor& sums, const Tensor& denominators) {
           const AttentionTargets to = attention_targets(grads);
           with_float(dy.dtype(), [&]<class T>(T) {
             poly2::Gradients<T> d{};
             set_gradients<T>(d, out.transpose(1, 2), dy.transpose(1, 2), to);
             d.norms = denominators.ptr<double>();
             poly2::backward(poly2::problem_of<T>(in.q, in.k, in.v, causal, eps), d, sums);
           });
         });
  return y.transpose(1, 2);
}

Tensor poly2_attention(In q, In k, In v, const AttentionCall& call, double eps) {
  Tensor keys = k.tensor(), values = v.tensor();
  if (call.bias.defined()) {
    keys = without_padding(k, call);  // padding may hold NaN, and the bias's gradient sums over it
    poly2::weigh_keys(q, keys, values, call.bias);
  }
  if (poly2::fewer_scores(q, k, v, call.causal)) {
    Similarity square = similarity_by_name("square");
    square.eps = eps;
    AttentionCall plain = call;
    plain.bias = Tensor();
    return generic_attention(q, {keys, k.where()}, {values, v.where()}, square, plain);
  }
  return poly2_by_features(q, {without_padding({keys, k.where()}, call), k.where()},
                           {without_padding({values, v.where()}, call), v.where()}, call.causal, eps);
}

}  // namespace heed::detail

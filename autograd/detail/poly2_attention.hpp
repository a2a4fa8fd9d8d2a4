// Linear attention by the products of two elements, FeatureMap::poly2: weights (q . k)^2. For autograd/linear_attention
// alone.
#pragma once
#include <heed/autograd/attention.hpp>
#include <heed/autograd/record.hpp>

namespace heed::detail {

// The features of x [..., D], without a gradient: float64 [..., D (D + 1) / 2], core/kernels/products_of_two.hpp.
Tensor products_of_two(const Tensor& x);

// linear_attention() of float32 or float64, by the squares of all scores or by features, whichever is faster for these
// shapes.
Tensor poly2_attention(In q, In k, In v, const AttentionCall& call, double eps);

// By features, whatever the shapes. Of the call causal alone; what else it may say is in k and v.
Tensor poly2_by_features(In q, In k, In v, bool causal, double eps);

}  // namespace heed::detail

// Linear attention with FeatureMap::poly2, whose features are the products of two elements: weights (q . k)^2. For
// autograd/linear_attention.cpp only.
#pragma once
#include <heed/autograd/attention.hpp>
#include <heed/autograd/record.hpp>

namespace heed::detail {

// The features of x [..., D]: float64 [..., D (D + 1) / 2], see core/kernels/linear_attention/products_of_two.hpp. No
// gradient.
Tensor products_of_two(const Tensor& x);

// linear_attention() for float32 or float64. Squares all scores or uses features, whichever is faster for these shapes.
Tensor poly2_attention(In q, In k, In v, const AttentionCall& call, double eps);

// Uses features for all shapes. Takes only `causal` of the call; its other parts must be applied to k and v before.
Tensor poly2_by_features(In q, In k, In v, bool causal, double eps);

}  // namespace heed::detail

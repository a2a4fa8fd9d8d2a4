// Linear attention of mapped queries and keys, at one level.
#include "linear_attention.hpp"

#include "steps.hpp"

namespace heed::kernels::HEED_LEVEL {

using linear::kernels_of;

extern const LinearFeatureTable linear_attention_table;
const LinearFeatureTable linear_attention_table = {
    {kernels_of<LinearKind::features, float>(), kernels_of<LinearKind::features, double>()},
    kernels_of<LinearKind::features, float, uint16_t>()};

}  // namespace heed::kernels::HEED_LEVEL

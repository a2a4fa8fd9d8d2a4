// Linear attention of one level, for features that are given as such or by their logarithms. One source has all kinds
// because they share most products, which take long to compile.
#include "linear_attention.hpp"
#include "log_attention.hpp"
#include "steps.hpp"

namespace heed::kernels::HEED_LEVEL {

using linear::kernels_of;

extern const LinearFeatureTable linear_attention_table;
const LinearFeatureTable linear_attention_table = {
    {kernels_of<LinearKind::features, float>(), kernels_of<LinearKind::features, double>()},
    kernels_of<LinearKind::features, float, uint16_t>()};

extern const LogTable log_attention_table;
const LogTable log_attention_table = {
    {kernels_of<LinearKind::logs, float>(), kernels_of<LinearKind::logs, double>()},
    {kernels_of<LinearKind::efficient, float>(), kernels_of<LinearKind::efficient, double>()}};

}  // namespace heed::kernels::HEED_LEVEL

// Linear attention of features given by their logarithms, at one level.
#include "log_attention.hpp"

#include "steps.hpp"

namespace heed::kernels::HEED_LEVEL {

using linear::kernels_of;

extern const LogTable log_attention_table;
const LogTable log_attention_table = {
    {kernels_of<LinearKind::logs, float>(), kernels_of<LinearKind::logs, double>()},
    {kernels_of<LinearKind::efficient, float>(), kernels_of<LinearKind::efficient, double>()}};

}  // namespace heed::kernels::HEED_LEVEL

// How much memory there is.
#pragma once
#include <string>

namespace heed {

// Bytes that this process can have at most: the machine's, or less by cgroup or by ulimit -v.
double memory_limit();

// Throws Error, which begins with `what`, where `bytes` are certainly needed and more than memory_limit(): before what
// would take them, and might make the whole machine halt first.
void check_memory(const std::string& what, double bytes);

}  // namespace heed

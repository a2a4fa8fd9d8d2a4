// The clock of progress lines and of speeds.
#pragma once

namespace heed::detail {

// Of a clock that only goes forward, from some beginning.
double seconds_now();

}  // namespace heed::detail

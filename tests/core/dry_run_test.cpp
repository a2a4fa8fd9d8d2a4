// dry_run(): skipped loops, pauses, and tensors that outlive the run.
#include <atomic>
#include <heed/core/dry_run.hpp>
#include <heed/core/parallel.hpp>
#include <heed/core/random.hpp>
#include <heed/core/tensor.hpp>

#include "tests/support.hpp"

using namespace heed;
using test::error_of;

TEST_CASE("dry_run: loops of its thread are skipped except in pauses, and exceptions are rethrown") {
  std::atomic<int> chunks{0};
  const auto loop = [&] { parallel_for(2, 1, [&](Index, Index) { ++chunks; }); };
  detail::dry_run([&] {
    loop();
    CHECK((chunks == 0 && detail::in_dry_run()));
    const detail::DryRunPause pause;
    loop();
    CHECK((chunks == 2 && !detail::in_dry_run()));
  });
  CHECK(error_of([] { detail::dry_run([] { fail("left"); }); }) == "left");
  loop();
  CHECK((chunks == 4 && !detail::in_dry_run()));
}

TEST_CASE("dry_run: a tensor that outlives the run is an Error, unless it was made in a pause") {
  Tensor one, other;
  CHECK(error_of([&] { detail::dry_run([&] { one = Tensor::zeros({3}); }); }) ==
        "dry_run: 1 tensor created in the run still exists, with undefined values; a tensor that outlives a dry run "
        "must be created and computed under a DryRunPause");
  CHECK(error_of([&] { detail::dry_run([&] { one = Tensor::zeros({3}), other = one.clone(); }); }) ==
        "dry_run: 2 tensors created in the run still exist, with undefined values; a tensor that outlives a dry run "
        "must be created and computed under a DryRunPause");
  detail::dry_run([&] {
    const Tensor gone = Tensor::zeros({3});
    const detail::DryRunPause pause;
    one = Tensor::full({3}, 2);
  });
  CHECK(one.at({2}) == 2);
  detail::dry_run([&] { one = Tensor(); });  // a tensor from before the run may be released
}

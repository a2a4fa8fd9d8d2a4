// Options of a run in its checkpoint.
#include <heed/heed.hpp>

#include "tests/data/temporary_folder.hpp"
#include "tests/optim/plane_run.hpp"

using namespace heed;
using test::contains;
using test::PlaneRun;
using test::progress_of;
using test::TemporaryFolder;

TEST_CASE("run settings: a resumed run may change steps, batches, precision and evaluations, with a message") {
  const TemporaryFolder folder;
  RunOptions o{.steps = 4, .checkpoint = {.path = folder.path / "m.h5"}};
  PlaneRun().go(o);
  o.checkpoint.start = RunStart::resume;
  o.steps = 6, o.accumulate = 2, o.shards = 3, o.precision = DType::bfloat16, o.evaluation.every = 2, o.grad_clip = 0.5;
  PlaneRun s;
  const std::string text = progress_of(s, o);
  for (const char* change : {"resumed at step 4", "changed: steps 6, before: 4", "changed: accumulate 2, before: 1",
                             "changed: shards 3, before: 1", "changed: precision bfloat16, before: float32",
                             "changed: eval_every 2, before: 250", "changed: grad_clip 0.5, before: 1.0"})
    CHECK(contains(text, change));
  PlaneRun again;
  CHECK_FALSE(contains(progress_of(again, o), "changed"));
  o.seed = 2;
  CHECK(contains(PlaneRun().refusal(o),
                 "they must be the same; CheckpointOptions::init starts a new run from its weights"));
}

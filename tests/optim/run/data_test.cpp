// The data of a run: fingerprints, and the position in the data.
#include <heed/heed.hpp>

#include "tests/data/temporary_folder.hpp"
#include "tests/optim/plane_run.hpp"

using namespace heed;
using test::contains;
using test::PlaneRun;
using test::progress_of;
using test::TemporaryFolder;

TEST_CASE("run data: batches are counted over runs that accumulate differently") {
  struct Noted {
    std::shared_ptr<std::vector<std::uint64_t>> requested = std::make_shared<std::vector<std::uint64_t>>();
    Batch batch(std::uint64_t seed, std::uint64_t n) const {
      requested->push_back(n);
      return test::Plane{}.batch(seed, n);
    }
    std::string fingerprint() const { return "noted"; }
  };
  const TemporaryFolder folder;
  RunOptions o{.steps = 2, .accumulate = 3, .checkpoint = {.path = folder.path / "m.h5"}};
  const auto next_of = [&](Index steps, Index accumulate) {
    const Noted data;
    o.steps = steps, o.accumulate = accumulate;
    PlaneRun().go(o, data);
    o.checkpoint.start = RunStart::resume;
    return data.requested->empty() ? 0 : data.requested->front();
  };
  CHECK(next_of(2, 3) == 0);
  CHECK(next_of(4, 1) == 6);
  CHECK(next_of(5, 2) == 8);
  CHECK(batches_read(load_checkpoint(o.checkpoint.path)).back().count == 10);
}

TEST_CASE("run data: other data are refused by both fingerprints, or accepted by a flag, from their beginning") {
  const TemporaryFolder folder;
  const auto points = [](double first) {
    Tensor x = Rng(1).normal({40, 8});
    x.ptr<float>()[0] = static_cast<float>(first);
    return TensorDataset({{"inputs", x}, {"targets", Rng(2).normal({40, 1})}});
  };
  const auto data = [&](double first, Index rows) { return SampleBatches(points(first), {.rows = rows}); };
  const auto held_out = [&](double first) { return SampleEvaluation(points(first), {.rows = 10}); };
  RunOptions o{.steps = 3, .evaluation = {.every = 1}, .checkpoint = {.path = folder.path / "m.h5"}};
  const auto go = [&](const Dataset& training, const EvaluationSet& validation) {
    PlaneRun s;
    return progress_of(o, [&](const RunOptions& with) { s.go(with, training, validation); });
  };
  go(data(1, 4), held_out(1));
  o.checkpoint.start = RunStart::resume, o.steps = 5;
  const std::string was = points(1).fingerprint(), is = points(2).fingerprint();
  CHECK(was != is);
  CHECK(test::error_of([&] { go(data(2, 4), held_out(1)); }) ==
        "resume: the training data of " + o.checkpoint.path.string() + " are " + was + " but those of this run are " +
            is + "; they must be the same unless CheckpointOptions::other_data (--other-data) is set");
  CHECK(contains(test::error_of([&] { go(data(1, 4), held_out(2)); }), "resume: the validation data of "));
  CHECK(contains(go(data(1, 4), {}), "changed: validation data: none, before: " + was));
  o.checkpoint.other_data = true, o.steps = 6;
  CHECK(contains(go(data(2, 4), {}), "changed: training data: " + is + ", before: " + was));
  CHECK(batches_read(load_checkpoint(o.checkpoint.path)).back().count == 1);
  // Without a fingerprint of the data set, the first batches are compared; another batch size changes them.
  o = {.steps = 2, .checkpoint = {.path = folder.path / "plane.h5"}};
  go(test::Plane{}, {});
  o.checkpoint.start = RunStart::resume, o.steps = 3;
  CHECK(contains(test::error_of([&] { go(test::Plane{.rows = 32}, {}); }), "data whose first batches have the hash "));
  CHECK_FALSE(contains(go(test::Plane{}, {}), "data"));
  // An older file has no fingerprint.
  Checkpoint c = load_checkpoint(o.checkpoint.path);
  c.texts.erase("training_data"), c.tensors.erase("history/batches");
  save_checkpoint(o.checkpoint.path, c);
  o.steps = 4;
  CHECK(contains(go(test::Plane{}, {}), "changed: the checkpoint does not say which data it was trained on"));
}

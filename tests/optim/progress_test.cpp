// What people see of a running training.
#include "tests/support.hpp"

using namespace heed;

namespace {

ProgressState full() {
  return {.step = 12345,
          .steps = 100000,
          .loss = 12.34567,
          .validation_loss = 11.25,
          .floor = 10.125,
          .tokens_per_second = 123456,
          .share_of_peak = 0.584,
          .seconds_left = 3 * 3600 + 125};
}

}  // namespace

TEST_CASE("progress: the line, and its brief form for 80 columns") {
  CHECK(
      progress_line(full()) ==
      "step 12345/100000  loss 12.3457  validation 11.2500 (floor 10.1250)  123.5k tokens/s  58% of peak  3h02m left");
  CHECK(progress_line(full(), true) ==
        "12345/100000 loss 12.3457 val 11.2500 floor 10.1250 123.5k tok/s 58% peak 3h02m left");
  ProgressState small{.step = 1, .steps = 30, .loss = 3.5, .tokens_per_second = 950, .seconds_left = 59.4};
  CHECK(progress_line(small) == "step 1/30  loss 3.5000  950 tokens/s  59s left");
  small.step = 30;  // nothing is left
  CHECK(progress_line(small) == "step 30/30  loss 3.5000  950 tokens/s");
  ProgressState usual = full();
  usual.step = 2999, usual.steps = 3000, usual.loss = 0.9, usual.validation_loss = 0.91, usual.floor = 0.89;
  usual.seconds_left = 125;
  CHECK(progress_line(usual, true).size() < 80);
}

TEST_CASE("progress: what else an evaluation told stands behind its loss") {
  ProgressState s = full();
  s.floor = {};
  s.step = 2999, s.steps = 3000, s.loss = 0.9, s.seconds_left = 125;
  s.validation_metrics = {{"accuracy", 0.61249}, {"precision", 1}};
  CHECK(
      progress_line(s) ==
      "step 2999/3000  loss 0.9000  validation 11.2500  accuracy 0.612  precision 1.000  123.5k tokens/s  58% of peak  "
      "2m05s left");
  s.validation_metrics.erase("precision");
  CHECK(progress_line(s, true) == "2999/3000 loss 0.9000 val 11.2500 accuracy 0.61 123.5k tok/s 58% peak 2m05s left");
  s.validation_loss = 0.91;
  CHECK(progress_line(s, true).size() < 80);
}

TEST_CASE("progress: a pipe gets plain lines, at the first step, at evaluations, and after a while") {
  std::FILE* file = std::tmpfile();
  {
    Progress progress(file, 1000);
    ProgressState s{.step = 1, .steps = 4, .loss = 1};
    progress.update(s, true);
    s.step = 2;
    progress.update(s, false);  // too soon
    s.step = 3;
    s.validation_loss = 0.5;
    progress.update(s, true);
    progress.message("resumed at step 3");
  }
  std::rewind(file);
  std::string text;
  for (int c = std::fgetc(file); c != EOF; c = std::fgetc(file)) text += static_cast<char>(c);
  std::fclose(file);
  CHECK(text ==
        "step 1/4  loss 1.0000  0 tokens/s  0s left\nstep 3/4  loss 1.0000  validation 0.5000  0 tokens/s  0s left\n"
        "resumed at step 3\n");
}

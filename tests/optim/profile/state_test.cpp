// The sums of a profile: names, times, and the modules of ops without parameters.
#include <algorithm>
#include <heed/core/clock.hpp>
#include <heed/optim/profile/state.hpp>

#include "tests/support.hpp"

using namespace heed;
using Event = detail::ProfileEvent;

TEST_CASE("profile state: a text has one number, and the empty one is 0") {
  detail::Names names;
  CHECK(names("") == 0);
  std::string text = "linear";
  const std::uint32_t linear = names(text);
  text = "gelu";  // a copy is kept
  CHECK(names("gelu") != linear);
  CHECK(names("linear") == linear);
  for (int i = 0; i < 1000; ++i) names(std::to_string(i));
  CHECK(names[linear] == "linear");
  CHECK(names[0].empty());
}

TEST_CASE("profile state: ops are counted separately, parts include their ops, spans are kept apart") {
  detail::ProfileSums sums;
  const Event events[] = {
      {.kind = Event::forward, .name = 1, .module = 2, .begin = 0, .end = 3, .self = 3, .bytes = 8, .flops = {5, 0, 7}},
      {.kind = Event::backward, .name = 1, .module = 2, .begin = 3, .end = 9, .self = 4, .bytes = 2},
      {.kind = Event::forward, .name = 1, .module = 3, .begin = 5, .end = 7, .self = 2},  // within the derivative
      {.kind = Event::part, .name = 4, .begin = 10, .end = 20},
      {.kind = Event::forward, .name = 1, .module = 2, .inside = 4, .begin = 10, .end = 12, .self = 2},
      {.kind = Event::part, .name = 5, .inside = 4, .begin = 12, .end = 13},
      {.kind = Event::span, .name = 6, .begin = 0, .end = 20},
      {.kind = Event::pass, .name = 7, .begin = 3, .end = 9},
      {.kind = Event::step, .name = 8, .begin = 0, .end = 21},
      {.kind = Event::concurrent, .name = 9, .inside = 4, .begin = -2, .end = 12, .bytes = 6},
      {.kind = Event::concurrent, .name = 9, .begin = 13, .end = 16, .bytes = 1}};
  sums.add(events);
  CHECK(sums.ops.size() == 2);
  const auto& op = sums.ops.at({1, 2});
  CHECK(op.forward.calls == 1);
  CHECK(op.forward.seconds == 3);
  CHECK(op.forward.bytes == 8);
  CHECK(op.forward.flops == detail::Flops{5, 0, 7});
  CHECK(op.backward.seconds == 4);
  CHECK(sums.ops.at({1, 3}).forward.seconds == 2);
  CHECK(sums.parts.size() == 1);
  CHECK(sums.parts.at(4).seconds == 10);
  CHECK(sums.spans.at(6).seconds == 20);
  CHECK(sums.concurrent.size() == 1);
  CHECK(sums.concurrent.at(9).calls == 2);
  CHECK(sums.concurrent.at(9).seconds == 17);
  CHECK(sums.concurrent.at(9).bytes == 7);
}

TEST_CASE("profile state: the module of an op without parameters") {
  const struct {
    const char *before, *after, *module;
  } cases[] = {{"blocks.0.attention.qkv", "blocks.0.attention.proj", "blocks.0.attention"},
               {"blocks.0.mlp", "blocks.1.norm1", "blocks"},
               {"blocks.1", "blocks.10", "blocks"},
               {"mlp", "mlp", "mlp"},
               {"mlp", "mlp.up", "mlp"},
               {"tokens", "blocks.0.norm1", ""},
               {"up", "upper", ""},
               {"", "mlp.up", ""},   // no parameter was read before
               {"mlp.up", "", ""}};  // no parameter was read after
  for (const auto& c : cases) {
    Profile::State state({});
    if (*c.before != 0) state.op("linear", c.before, 0);
    state.op("add", "", 0);
    if (*c.after != 0) state.op("linear", c.after, 0);
    const Profile::State::Measured m = state.so_far();
    const auto add = std::find_if(m.sums.ops.begin(), m.sums.ops.end(),
                                  [&](const auto& op) { return state.names[op.first.first] == "add"; });
    REQUIRE(add != m.sums.ops.end());
    INFO(c.before, " and ", c.after);
    CHECK(state.names[add->first.second] == c.module);
  }
}

TEST_CASE("profile state: waiting time within an op is a separate part, not time of the op or its derivative") {
  Profile::State state({});
  const auto wait = [&] {
    const double begin = detail::seconds_now();
    while (detail::seconds_now() < begin + 0.02) continue;
    state.waited("waiting", begin, detail::seconds_now());
  };
  state.count(DType::float32, 8);
  wait();
  const std::uint64_t op = state.op("linear", "up", 0);
  state.op("relu", "", 0);
  const std::uint64_t backward = state.begin_backward(op, "linear", "up", 0);
  wait();
  state.end(backward);
  const Profile::State::Measured m = state.so_far();
  const auto& linear = m.sums.ops.at({state.names("linear"), state.names("up")});
  const auto& waiting = m.sums.parts.at(state.names("waiting"));
  CHECK(waiting.calls == 2);
  CHECK(waiting.seconds >= 0.04);
  CHECK(linear.forward.flops[0] == 8);
  double all = waiting.seconds;
  for (const auto& [key, sum] : m.sums.ops) all += sum.forward.seconds + sum.backward.seconds;
  CHECK(all <= m.seconds);  // waiting time counts once
  CHECK(linear.forward.seconds >= 0);
  CHECK(linear.backward.seconds >= 0);
}

// The checks "members", "cost" and "refuses": the name, members, cost and capabilities that a mechanism declares.
#include <algorithm>
#include <cmath>
#include <heed/autograd/detail/tape_state.hpp>
#include <heed/layers/attention/detail/conformance_subject.hpp>
#include <heed/layers/model.hpp>

namespace heed::detail::conformance {
namespace {

// Checks that members() names every parameter that a forward pass uses.
void check_all_named(Subject& s, Finding& f, Trial t) {
  AttentionMechanism& m = s.mechanism(DType::float64);
  std::set<const Storage*> named;
  for (const NamedParameter& p : named_parameters(m)) named.insert(p.parameter->storage());
  Tape tape;
  for (const NamedBuffer& p : parts(t)) *p.buffer = tape.watch(*p.buffer);
  applied(m, t);
  for (const Node& n : tape.state().nodes)
    if (n.parameter.defined())
      f.expect(named.count(n.parameter.storage()) > 0,
               "apply() uses the parameter " + describe(n.parameter) + ", which members() does not name");
}

// Peak bytes of forward and backward, without their inputs.
double peak_of(Subject& s, const Trial& t) {
  const Trial x = in_dtype(t, DType::float32);
  const std::size_t before = memory_use().current;
  reset_peak_memory();
  s.run(x, DType::float32);
  return static_cast<double>(memory_use().peak - before);
}

}  // namespace

void check_members(Subject& s, Finding& f) {
  AttentionMechanism& m = s.mechanism(DType::float64);
  f.expect(!m.name().empty() && m.name().find_first_of("\t\n/") == std::string::npos,
           "its name is «" + m.name() + "»; it must be one line without /, and not empty");
  std::set<std::string> names;
  const auto add = [&](const std::string& name) {
    f.expect(!name.empty() && name.find('/') == std::string::npos,
             "the name of a member is «" + name + "»; it must be a name without /");
    f.expect(names.insert(name).second, "two members have the name " + name);
  };
  const Members members = members_of(m);
  for (const NamedParameter& p : members.parameters) add(p.name);
  for (const NamedBuffer& b : members.buffers) add(b.name);
  // Another mechanism, made with another seed, that receives the parameters and buffers.
  ConformanceOptions drawn_otherwise = s.options;
  drawn_otherwise.seed = s.options.seed + 1000;
  Subject other(s.make, drawn_otherwise);
  f.expect(other.mechanism(DType::float64).name() == m.name(), "two mechanisms of one factory have different names");
  const Index n = s.at_most(12);
  for (const DType dtype : {DType::float64, DType::float32}) {
    copy_values(s.mechanism(dtype), other.mechanism(dtype));
    for (const Variant& v : s.ends({n, n})) {
      const Trial t = s.with_call(s.trial({n, n}), v);
      f.about(t);
      f.same_bits("another mechanism with the same parameters and buffers", other.out(t, dtype), s.out(t, dtype));
      if (dtype == DType::float64) check_all_named(s, f, t);
    }
  }
}

void check_cost(Subject& s, Finding& f) {
  AttentionMechanism& m = s.mechanism(DType::float32);
  const auto keys = [&](Index n) { return m.keys_per_query(n, s.options.size); };
  double before = 0;
  for (const Index n : {1, 10, 100, 1000, 10000}) {
    if (n > s.options.longest) break;
    f.expect(std::isfinite(keys(n)) && keys(n) > 0 && keys(n) >= before,
             "keys_per_query of " + std::to_string(n) + " positions is " + std::to_string(keys(n)) + "; it must be " +
                 (before > 0 ? "at least " + std::to_string(before) + ", the value for fewer" : "above 0"));
    before = keys(n);
  }
  // Four times the positions need at most four times the memory, times the growth of keys_per_query. The bound has a
  // margin, because blocks of the memory pool are up to a quarter too large and the first positions see fewer keys.
  const Index n = std::min<Index>(s.options.longest / 4, 500);
  const double growth = 4 * keys(4 * n) / keys(n);
  if (growth >= 16) return f.leave_out("memory, as keys_per_query is all positions");
  if (n < 250) return f.leave_out("memory, as longest is " + std::to_string(s.options.longest));
  for (const Variant& order : s.orders()) {
    const Trial few = s.with_call(s.trial({n, n, 1}), order), many = s.with_call(s.trial({4 * n, 4 * n, 1}), order);
    f.about(many);
    const double few_bytes = peak_of(s, few), many_bytes = peak_of(s, many);
    f.expect(many_bytes <= 1.7 * growth * few_bytes,
             std::to_string(4 * n) + " positions take " + std::to_string(many_bytes / 1e6) + " MB, " +
                 std::to_string(n) + " take " + std::to_string(few_bytes / 1e6) +
                 "; by keys_per_query it may be at most " + std::to_string(growth) + " times as much");
  }
}

void check_refuses(Subject& s, Finding& f) {
  const AttentionCapabilities& can = s.can();
  AttentionMechanism& m = s.mechanism(DType::float64);
  const Index n = s.at_most(6);
  const Trial t = s.trial({n, n});
  const auto refuses = [&](bool has, const std::string& what, const std::function<void()>& call) {
    if (has) return;
    std::string error;
    try {
      call();
    } catch (const Error& e) {
      error = e.what();
    }
    f.expect(error.find(what) != std::string::npos && error.find(m.name()) != std::string::npos,
             what + (error.empty() ? ": the call must throw Error"
                                   : ": the error must name it and the mechanism: " + error));
  };
  const auto call = [&](const AttentionCall& c) { return [&, c] { m.apply(t.q, t.k, t.v, c, t.inputs); }; };
  const auto fitting = [&](AttentionCall c) { return c.causal = can.causal_only, call(c); };
  refuses(can.causal, "causal", call({.causal = true}));
  refuses(!can.causal_only, "causal only", call({}));
  f.expect(can.causal || !can.causal_only, "causal only is declared, but causal is not");
  refuses(can.key_mask, "key mask", fitting({.key_lengths = Tensor::full({2}, 1, DType::int32)}));
  refuses(can.key_mask, "key mask", fitting({.key_mask = Tensor::ones({2, n}, DType::bool8)}));
  refuses(can.full_mask, "mask", fitting({.mask = Tensor::ones({n, n}, DType::bool8)}));
  // With one position, a bias of pairs is also a bias of keys.
  refuses(can.bias || n == 1, "bias", fitting({.bias = Tensor::ones({n, n}, DType::float64)}));
  refuses(can.bias || can.key_bias, "bias", fitting({.bias = Tensor::ones({1, n}, DType::float64)}));
  refuses(can.dropout, "dropout", fitting({.dropout = 0.5}));
  refuses(can.weights, "weights", [&] { m.weights(t.q, t.k, t.call, t.inputs); });
  refuses(can.state, "state", [&] { m.make_state(); });
  const Trial longer = s.trial({n, n + 1}), shared = s.trial({n, n, 2, s.options.heads % 2 == 0 ? 2 : 1});
  refuses(can.cross, "queries and keys", [&] { applied(m, s.with_call(longer, {"", t.call})); });
  if (s.options.heads % 2 == 0) refuses(can.grouped, "heads", [&] { applied(m, s.with_call(shared, {"", t.call})); });
}

}  // namespace heed::detail::conformance

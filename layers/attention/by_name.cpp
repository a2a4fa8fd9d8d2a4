// The table of mechanisms by name, their options, and the defaults of the options. Above 400 lines, because it is one
// table.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <heed/core/names.hpp>
#include <heed/layers/attention/flex.hpp>
#include <heed/layers/attention/gated.hpp>
#include <heed/layers/attention/linear.hpp>
#include <heed/layers/attention/longformer.hpp>
#include <heed/layers/attention/luna.hpp>
#include <heed/layers/attention/luong.hpp>
#include <heed/layers/attention/reformer.hpp>
#include <heed/layers/attention/relative.hpp>
#include <heed/layers/attention/softmax.hpp>
#include <heed/layers/attention/sparse.hpp>
#include <heed/layers/attention/synthesizer.hpp>
#include <heed/layers/model_config.hpp>
#include <optional>
#include <span>

namespace heed {
namespace {

using Options = MechanismOptions;
using Made = AttentionMechanism;

void need(const char* mechanism, const char* what, Index value) {
  require(value > 0, "attention: ", mechanism, " needs ", what, "; it is ", value);
}

LinearAttention linear(const Options& o, Index, Rng&) {
  LinearFeatures features{.feature_map = feature_map(o.feature_map)};
  if (o.elu_alpha > 0) features.alpha = o.elu_alpha;
  return {features};
}

WindowAttention window(const Options& o) {
  const std::vector<Index> dilations = numbers_of("attention: dilation of window", o.dilation);
  require(dilations.size() <= 1, "attention: dilation of window is ", o.dilation,
          "; it must be one number, as only longformer has one per head");
  return WindowAttention({.window = o.window,
                          .dilation = dilations.empty() ? 1 : dilations[0],
                          .globals = numbers_of("attention: globals of window", o.globals)});
}

LongformerAttention longformer(const Options& o) {
  LongformerOptions options{.window = o.window, .size = o.head_size, .value_size = o.value_size};
  if (!o.dilation.empty()) options.dilations = numbers_of("attention: dilation of longformer", o.dilation);
  if (!o.globals.empty()) options.globals = numbers_of("attention: globals of longformer", o.globals);
  const auto count = static_cast<Index>(options.dilations.size());
  require(count == 1 || count == o.heads, "attention: dilation of longformer is ", o.dilation, " and there are ",
          o.heads, " heads; it must be one number, or one per head");
  return LongformerAttention(options);
}

// The words of OutputGate, in its order, and of the norm.
constexpr const char *kOutputGates[] = {"none", "silu", "sigmoid"}, *kOutputNorms[] = {"none", "rms"};

StateAttentionOptions state_options(const Options& o, Index layer) {
  const auto gate = std::find(std::begin(kOutputGates), std::end(kOutputGates), o.output_gate);
  return {.value_heads = o.value_heads,
          .value_size = o.value_size > 0 ? o.value_size : o.head_size,
          .convolution = o.short_convolution,
          .norm = o.output_norm == "rms",
          .norm_eps = o.output_norm_eps,
          .output_gate = static_cast<OutputGate>(gate - kOutputGates),
          .gate_rank = o.gate_rank,
          .max_rate = o.max_rate,
          .householders = std::max<Index>(1, o.householders),
          .layer = o.layers > 0 ? layer : 0,
          .layers = o.layers};
}

template <LuongAlignment kAlignment>
Made local(const Options& o, Index, Rng& rng) {
  return LuongLocalAttention(o.heads, o.head_size, rng,
                             {.score = LuongScore::general, .alignment = kAlignment, .radius = o.radius});
}

// Options that a mechanism needs. A row of the table holds their sum.
enum Needs { kNothing = 0, kHeads = 1, kSize = 2, kContext = 4, kFeatureMap = 8, kHeadsAndSize = kHeads + kSize };

struct Named {
  const char* name;
  int needs;
  Made (*make)(const Options& o, Index layer, Rng& rng);
  bool causal = true;        // has a causal form
  bool whole = true;         // can attend to all positions
  bool memory_only = false;  // for attention to a memory only
  std::optional<StateRule> rule = {};

  bool can(const Options& o) const { return o.memory ? whole || memory_only : o.causal ? causal : whole; }
  MechanismFactory factory(const Options& o) const {
    if (needs & kHeads) need(name, "the number of heads", o.heads);
    if (needs & kSize) need(name, "the size of a head", o.head_size);
    if (needs & kContext) need(name, "the context", o.context);
    if (needs & kFeatureMap) feature_map(o.feature_map);  // throws here rather than at the first layer
    return [o, made = make](Index layer, Rng& rng) {
      if (o.global_every > 0 && (layer + 1) % o.global_every == 0) return Made(SoftmaxAttention());
      return made(o, layer, rng);
    };
  }
};
// The row of a rule with a state, causal only.
template <StateRule kRule>
constexpr Named state() {
  const auto make = [](const Options& o, Index layer, Rng& rng) -> Made {
    return StateAttention(kRule, o.heads, o.head_size, rng, state_options(o, layer));
  };
  return {name_of(kRule), kHeadsAndSize, make, true, false, false, kRule};
}

constexpr Named kMechanisms[] = {
    {"softmax", kNothing, [](const Options&, Index, Rng&) -> Made { return SoftmaxAttention(); }},
    {"linear", kFeatureMap, [](const Options& o, Index i, Rng& rng) -> Made { return linear(o, i, rng); }},
    {"efficient", kNothing,
     [](const Options& o, Index, Rng&) { return o.causal ? Made(CausalEfficientAttention()) : EfficientAttention(); }},
    {"taylor", kNothing, [](const Options&, Index, Rng&) -> Made { return TaylorAttention(); }},
    {"luong-dot", kNothing, [](const Options&, Index, Rng&) -> Made { return LuongDot(); }},
    {"luong-general", kHeadsAndSize,
     [](const Options& o, Index, Rng& rng) -> Made { return LuongGeneral(o.heads, o.head_size, rng); }},
    {"luong-concat", kHeadsAndSize,
     [](const Options& o, Index, Rng& rng) -> Made { return LuongConcat(o.heads, o.head_size, rng, {o.units}); }},
    {"luong-location", kHeadsAndSize + kContext,
     [](const Options& o, Index, Rng& rng) -> Made { return LuongLocation(o.heads, o.head_size, rng, {o.context}); }},
    {"bahdanau", kHeadsAndSize,
     [](const Options& o, Index, Rng& rng) -> Made { return BahdanauAttention(o.heads, o.head_size, rng, {o.units}); }},
    {"cosine", kHeadsAndSize,
     [](const Options& o, Index, Rng& rng) -> Made { return CosineAttention(o.heads, o.head_size, rng); }},
    {"rbf", kNothing, [](const Options& o, Index, Rng&) -> Made { return RbfAttention(o.rbf_width); }},
    {"polynomial", kNothing, [](const Options& o, Index, Rng&) -> Made { return PolynomialAttention(o.degree); }},
    {"talking-heads", kHeads, [](const Options& o, Index, Rng&) -> Made { return TalkingHeadsAttention(o.heads); }},
    {"window", kNothing, [](const Options& o, Index, Rng&) -> Made { return window(o); }},
    {"longformer", kHeadsAndSize, [](const Options& o, Index, Rng&) -> Made { return longformer(o); }},
    {"strided", kNothing, [](const Options& o, Index, Rng&) -> Made { return StridedAttention({.stride = o.stride}); }},
    {"fixed", kNothing, [](const Options& o, Index, Rng&) -> Made { return FixedAttention({.block = o.stride}); }},
    {"alibi", kHeads,
     [](const Options& o, Index, Rng&) -> Made {
       return FlexAttention({.name = "alibi", .score_mod = alibi(o.heads), .by_distance = true});
     }},
    {"synthesizer", kHeadsAndSize + kContext,
     [](const Options& o, Index, Rng& rng) -> Made {
       const SynthesizerKind kind = synthesizer_kind(o.synthesizer.empty() ? "dense" : o.synthesizer);
       return SynthesizerAttention(o.heads, o.head_size, rng, {.kind = kind, .positions = o.context});
     }},
    {"shaw", kSize,
     [](const Options& o, Index, Rng& rng) -> Made {
       return ShawAttention(o.head_size, rng, {.max_distance = o.max_distance, .value_size = o.value_size});
     }},
    {"nezha", kSize,
     [](const Options& o, Index, Rng&) -> Made {
       return NezhaAttention(o.head_size, {.max_distance = o.max_distance, .value_size = o.value_size});
     }},
    {"top-k", kNothing, [](const Options& o, Index, Rng&) -> Made { return TopKAttention(o.top_k); }},
    {"lsh", kSize,
     [](const Options& o, Index layer, Rng&) -> Made {
       return LshAttention({.size = o.head_size,
                            .buckets = o.buckets,
                            .rounds = o.rounds,
                            .window = o.window,
                            .seed = o.seed + static_cast<std::uint64_t>(layer)});
     }},
    {"favor", kSize,
     [](const Options& o, Index layer, Rng&) -> Made {
       return FavorAttention(o.head_size, {.features = o.features, .seed = o.seed, .layer = layer});
     }},
    {"linformer", kContext,
     [](const Options& o, Index, Rng& rng) -> Made { return LinformerAttention(o.context, o.rows, rng); }, false},
    {"luna", kHeadsAndSize,
     [](const Options& o, Index, Rng& rng) -> Made {
       const LunaOptions options{.memory = o.memory_size, .value_size = o.value_size};
       if (o.causal) return CausalLunaAttention(o.heads, o.head_size, rng, options);
       return LunaAttention(o.heads, o.head_size, rng, options);
     }},
    {"reformer", kSize,
     [](const Options& o, Index layer, Rng&) -> Made {
       return ReformerAttention({.size = o.head_size,
                                 .chunk = o.chunk,
                                 .rounds = o.rounds,
                                 .seed = o.seed + static_cast<std::uint64_t>(layer)});
     },
     false},
    {"forgetting", kNothing, [](const Options&, Index, Rng&) -> Made { return ForgettingAttention(); }, true, false},
    state<StateRule::retention>(),
    state<StateRule::lightning>(),
    state<StateRule::ssd>(),
    state<StateRule::gla>(),
    state<StateRule::delta>(),
    state<StateRule::gated_delta>(),
    state<StateRule::kda>(),
    {"luong-local-m", kHeadsAndSize, local<LuongAlignment::monotonic>, false, false, true},
    {"luong-local-p", kHeadsAndSize, local<LuongAlignment::predictive>, false, false, true}};

std::vector<std::string> names_of(const std::function<bool(const Named& m)>& chosen) {
  std::vector<std::string> names;
  for (const Named& m : kMechanisms)
    if (chosen(m)) names.emplace_back(m.name);
  return names;
}

}  // namespace

const std::vector<std::string>& mechanism_names(bool causal) {
  static const std::vector<std::string> can_be_causal = names_of([](const Named& m) { return m.causal; });
  static const std::vector<std::string> can_see_all = names_of([](const Named& m) { return m.whole; });
  return causal ? can_be_causal : can_see_all;
}

const std::vector<std::string>& all_mechanism_names() {
  static const std::vector<std::string> all = names_of([](const Named& m) { return m.causal || m.whole; });
  return all;
}

// What a mechanism declares, which does not depend on the options.
static AttentionCapabilities capabilities_of(const Named& m, bool memory) {
  Rng rng;
  const Options o{.causal = false, .memory = memory, .heads = 1, .head_size = 4, .context = 4};
  return m.make(settled_options(m.name, o), 0, rng).capabilities();
}

const std::vector<std::string>& memory_mechanism_names() {
  static const std::vector<std::string> all = names_of([](const Named& m) {
    return m.can({.causal = false, .memory = true}) && capabilities_of(m, true).attends_to_memory();
  });
  return all;
}

bool MechanismOption::of(std::string_view mechanism) const {
  return std::find(mechanisms.begin(), mechanisms.end(), mechanism) != mechanisms.end();
}

static std::vector<MechanismOption> kernel_options() {
  return {{"feature-map",
           "feature map of queries and keys [elu]",
           {"linear"},
           &Options::feature_map,
           {"elu", "relu", "softplus", "exp", "poly2"}},
          {"elu-alpha",
           "with the map elu, features are alpha (e^x - 1) + 1 below 0; at most 1 [1]",
           {"linear"},
           &Options::elu_alpha},
          {"rbf-width",
           "distance at which a weight has fallen to exp(-1/2) [sqrt(sqrt(D) / 2) for heads of size D]",
           {"rbf"},
           &Options::rbf_width},
          {"polynomial-degree", "power p of 1 + q.k / (p sqrt(D)), even [2]", {"polynomial"}, &Options::degree}};
}
static std::vector<std::string> state_rules() {
  return names_of([](const Named& m) { return m.rule.has_value(); });
}
static std::vector<MechanismOption> pattern_options() {
  std::vector<std::string> in_hybrids = {"window", "linear"};
  for (const std::string& name : state_rules()) in_hybrids.push_back(name);
  return {{"window",
           "keys per query, for lsh per query and round [256; lsh 64]",
           {"window", "longformer", "lsh"},
           &Options::window},
          {"dilation",
           "distance between neighbours in the window; for longformer also one per head, as 1,1,2,4 [1]",
           {"window", "longformer"},
           &Options::dilation},
          {"globals",
           "positions that see all positions and are seen by all, as 0,7 [none; longformer 0]",
           {"window", "longformer"},
           &Options::globals},
          {"global-every",
           "layers N, 2 N, ... are softmax attention to all keys, as in Gemma 3 (6) and Qwen3-Next (4) [no layer]",
           in_hybrids, &Options::global_every},
          {"stride",
           "distance between far keys, or size of a block [square root of the context]",
           {"strided", "fixed"},
           &Options::stride}};
}
static std::vector<MechanismOption> state_rule_options() {
  const std::vector<std::string> all = state_rules();
  const auto named = [](std::initializer_list<StateRule> rules) {
    return detail::names_of(rules, [](StateRule rule) { return name_of(rule); });
  };
  const std::vector<std::string> deltas = named({StateRule::delta, StateRule::gated_delta, StateRule::kda});
  return {
      {"value-heads", "value heads per head of queries and keys; they divide the value size [1]", all,
       &Options::value_heads},
      {"short-convolution",
       "positions per window of the convolution before the rule; 1: none [4; retention, lightning and gla 1]", all,
       &Options::short_convolution},
      {"output-norm",
       "norm of each head's result, for lightning of all heads [rms]",
       all,
       &Options::output_norm,
       {std::begin(kOutputNorms), std::end(kOutputNorms)}},
      {"output-norm-eps", "epsilon of the norm [1e-5; lightning 1e-6]", all, &Options::output_norm_eps},
      {"output-gate",
       "function of the gate of the result [silu; lightning and kda sigmoid, delta none]",
       all,
       &Options::output_gate,
       {std::begin(kOutputGates), std::end(kOutputGates)}},
      {"gate-rank", "rank of the maps to gates per channel [gla 16; kda size of a head]",
       named({StateRule::gla, StateRule::kda}), &Options::gate_rank},
      {"max-rate", "largest rate of the delta rule, at most 2; above 1 a state can change its sign [1]", deltas,
       &Options::max_rate},
      {"householders", "steps of the delta rule per token, as in DeltaProduct, with keys and values of their own [1]",
       deltas, &Options::householders}};
}
static std::vector<MechanismOption> other_options() {
  return {
      {"synthesizer",
       "how scores are made [dense]",
       {"synthesizer"},
       &Options::synthesizer,
       {"dense", "random", "factorized-dense", "factorized-random"}},
      {"max-distance",
       "distance from which on all keys have the same vectors [16; nezha 64]",
       {"shaw", "nezha"},
       &Options::max_distance},
      {"top-k-keys", "keys per query, those with the largest scores [16]", {"top-k"}, &Options::top_k},
      {"linformer-rows", "rows that all keys are mixed into [256, at most the context]", {"linformer"}, &Options::rows},
      {"luna-memory", "vectors that all keys are packed into [16]", {"luna"}, &Options::memory_size},
      {"lsh-rounds", "rounds of hashing [4]", {"lsh", "reformer"}, &Options::rounds},
      {"lsh-chunk", "positions per chunk of the order of buckets [64]", {"reformer"}, &Options::chunk},
      {"lsh-buckets", "buckets per round, even [8]", {"lsh"}, &Options::buckets},
      {"favor-features", "random features [D log D for heads of size D]", {"favor"}, &Options::features},
      {"additive-units", "size of the hidden layer [size of a head]", {"luong-concat", "bahdanau"}, &Options::units},
      {"local-radius",
       "keys on each side of the aligned position [10]",
       {"luong-local-m", "luong-local-p"},
       &Options::radius}};
}

const std::vector<MechanismOption>& mechanism_options() {
  static const std::vector<MechanismOption> all = [] {
    std::vector<MechanismOption> list = kernel_options();
    for (const auto& more : {pattern_options(), other_options(), state_rule_options()})
      list.insert(list.end(), more.begin(), more.end());
    return list;
  }();
  return all;
}

std::vector<Index> numbers_of(std::string_view what, std::string_view text) {
  std::vector<Index> numbers;
  const auto refuse = [&] { fail(what, " is \"", text, "\"; it must be whole numbers separated by commas, as 0,7"); };
  for (const char *at = text.data(), *end = at + text.size(); at != end;) {
    Index number = 0;
    const auto [next, error] = std::from_chars(at, end, number);
    if (error != std::errc() || number < 0 || number >= Index{1} << 24 || (next != end && *next != ',')) refuse();
    numbers.push_back(number);
    at = next == end ? end : next + 1;
    if (next != end && at == end) refuse();
  }
  return numbers;
}

// Sets the options of the published layer in place of 0 and empty words.
static void settle_state_rule(StateRule rule, MechanismOptions& o) {
  const StateAttentionOptions usual = StateAttentionOptions::published(rule, o.head_size);
  if (o.value_heads == 0) o.value_heads = usual.value_heads;
  if (o.short_convolution == 0) o.short_convolution = usual.convolution;
  if (o.gate_rank == 0) o.gate_rank = usual.gate_rank;
  if (o.max_rate == 0) o.max_rate = usual.max_rate;
  if (o.householders == 0) o.householders = usual.householders;
  if (o.output_norm_eps == 0) o.output_norm_eps = usual.norm_eps;
  if (o.output_norm.empty()) o.output_norm = usual.norm ? "rms" : "none";
  if (o.output_gate.empty()) o.output_gate = kOutputGates[static_cast<std::size_t>(usual.output_gate)];
  const auto check_word = [&](const char* option, const std::string& word, std::span<const char* const> words) {
    require(std::find(words.begin(), words.end(), word) != words.end(), "attention: ", option, " of ", name_of(rule),
            " is '", word, "'; it must be one of ", detail::joined(words));
  };
  check_word("output-norm", o.output_norm, kOutputNorms);
  check_word("output-gate", o.output_gate, kOutputGates);
}

MechanismOptions settled_options(std::string_view name, MechanismOptions o) {
  const std::string mechanism(name);
  for_each_option(o, [&](const MechanismOption& option, const auto& value) {
    if constexpr (!std::is_same_v<std::decay_t<decltype(value)>, std::string>)
      require(!option.of(name) || (value >= 0 && std::isfinite(value)), "attention: ", option.name, " of ", mechanism,
              " is ", value,
              std::is_same_v<std::decay_t<decltype(value)>, Index> ? "; it must be 1 or more, or 0 for its default"
                                                                   : "; it must be above 0, or 0 for its default");
  });
  const bool elu = o.feature_map == "elu" && o.elu_alpha <= 1;
  require(name != "linear" || o.elu_alpha == 0 || elu, "attention: elu-alpha of linear is ", o.elu_alpha,
          " and feature-map is ", o.feature_map, "; elu-alpha must be at most 1, and is for the map elu");
  for (const Named& m : kMechanisms)
    if (name == m.name && m.rule) settle_state_rule(*m.rule, o);
  const auto if_none = [](Index& value, Index usual) { value = value == 0 ? usual : value; };
  if (name == "window" || name == "longformer") if_none(o.window, 256);
  if (name == "shaw" || name == "nezha") if_none(o.max_distance, name == "shaw" ? 16 : 64);
  if (name == "polynomial") if_none(o.degree, 2);
  if (name == "top-k") if_none(o.top_k, 16);
  if (name == "luong-local-m" || name == "luong-local-p") if_none(o.radius, 10);
  if (name == "luong-concat" || name == "bahdanau") if_none(o.units, o.head_size);
  if (name == "lsh") if_none(o.window, 64), if_none(o.rounds, 4), if_none(o.buckets, 8);
  if (name == "reformer") if_none(o.chunk, 64), if_none(o.rounds, 4);
  if (name == "luna") if_none(o.memory_size, 16);
  if (name == "linformer" && o.context > 0) if_none(o.rows, std::min<Index>(256, o.context));
  if ((name == "strided" || name == "fixed") && o.stride == 0) {
    need(mechanism.c_str(), "a stride or the context", o.context);
    o.stride = std::max<Index>(2, std::lround(std::sqrt(static_cast<double>(o.context))));
  }
  return o;
}

MechanismOptions older_options(std::string_view name, Index context) {
  MechanismOptions o{.context = context};
  if (name == "window" || name == "lsh") o.window = std::max<Index>(4, context / 8);
  if (name == "linformer") o.rows = std::max<Index>(4, context / 4);
  return o;
}

MechanismFactory mechanism_by_name(std::string_view name, const MechanismOptions& options) {
  for (const Named& m : kMechanisms) {
    if (m.name == name) {
      if (!m.can(options))
        fail("attention: ", m.name,
             m.memory_only    ? " is for decoders: its keys are from another sentence"
             : options.causal ? " has no causal form: " + capabilities_of(m, false).why + "; it is for encoders"
                              : " is causal only: it is for language models");
      Options o = settled_options(name, options);
      o.causal = o.causal && !o.memory;
      return m.factory(o);
    }
  }
  fail("attention: the mechanism is '", name, "'; it must be one of ",
       detail::joined(options.memory ? memory_mechanism_names() : mechanism_names(options.causal)));
}

}  // namespace heed

#include <algorithm>
#include <cmath>
#include <heed/layers/attention/bahdanau.hpp>
#include <heed/layers/attention/by_name.hpp>
#include <heed/layers/attention/cosine.hpp>
#include <heed/layers/attention/efficient.hpp>
#include <heed/layers/attention/favor.hpp>
#include <heed/layers/attention/linear.hpp>
#include <heed/layers/attention/linformer.hpp>
#include <heed/layers/attention/lsh.hpp>
#include <heed/layers/attention/luong.hpp>
#include <heed/layers/attention/sparse.hpp>
#include <heed/layers/attention/taylor.hpp>
#include <heed/layers/attention/top_k.hpp>

namespace heed {
namespace {

using Options = MechanismOptions;

void need(const char* mechanism, const char* what, Index value) {
  require(value > 0, "attention: ", mechanism, " needs ", what, "; it is ", value);
}
void need_heads(const char* mechanism, const Options& o) {
  need(mechanism, "the number of heads", o.heads);
  need(mechanism, "the size of a head", o.head_size);
}

Index window_of(const char* mechanism, const Options& o) {
  if (o.window > 0) return o.window;
  need(mechanism, "a window or the context", o.context);
  return std::max<Index>(4, o.context / 8);
}
Index stride_of(const char* mechanism, const Options& o) {
  if (o.stride > 0) return o.stride;
  need(mechanism, "a stride or the context", o.context);
  return std::max<Index>(2, std::lround(std::sqrt(static_cast<double>(o.context))));
}

// A mechanism whose parameters are made from heads, size and a generator.
template <class T>
MechanismFactory with_parameters(const char* name, const Options& o) {
  need_heads(name, o);
  return [o](Index, Rng& rng) { return T(o.heads, o.head_size, rng); };
}

MechanismFactory linear(const Options& o) {
  return [map = feature_map(o.feature_map)](Index, Rng&) { return LinearAttention{.feature_map = map}; };
}
MechanismFactory location(const Options& o) {
  need_heads("luong-location", o);
  need("luong-location", "the context", o.context);
  return [o](Index, Rng& rng) { return LuongLocation(o.heads, o.head_size, rng, {.positions = o.context}); };
}
MechanismFactory window(const Options& o) {
  return [w = window_of("window", o)](Index, Rng&) { return WindowAttention({.window = w}); };
}
MechanismFactory strided(const Options& o) {
  return [l = stride_of("strided", o)](Index, Rng&) { return StridedAttention({.stride = l}); };
}
MechanismFactory fixed(const Options& o) {
  return [l = stride_of("fixed", o)](Index, Rng&) { return FixedAttention({.block = l}); };
}
MechanismFactory lsh(const Options& o) {
  need("lsh", "the size of a head", o.head_size);
  return [o, w = window_of("lsh", o)](Index layer, Rng&) {
    return LshAttention({.size = o.head_size,
                         .buckets = 8,
                         .rounds = 4,
                         .window = w,
                         .seed = o.seed + static_cast<std::uint64_t>(layer)});
  };
}
MechanismFactory favor(const Options& o) {
  need("favor", "the size of a head", o.head_size);
  return [o](Index layer, Rng&) { return FavorAttention(o.head_size, {.seed = o.seed, .layer = layer}); };
}

MechanismFactory efficient(const Options& o) {
  if (!o.causal) return [](Index, Rng&) { return EfficientAttention(); };
  return [](Index, Rng&) { return CausalEfficientAttention(); };
}
MechanismFactory linformer(const Options& o) {
  need("linformer", "the context", o.context);
  const Index rows = o.rows > 0 ? o.rows : std::max<Index>(4, o.context / 4);
  return [positions = o.context, rows](Index, Rng& rng) { return LinformerAttention(positions, rows, rng); };
}

struct Named {
  const char* name;
  MechanismFactory (*make)(const Options& o);
  bool causal = true;  // it can be
};
constexpr Named kMechanisms[] = {
    {"softmax", [](const Options&) -> MechanismFactory { return softmax_mechanism; }},
    {"linear", linear},
    {"efficient", efficient},
    {"taylor", [](const Options&) -> MechanismFactory { return [](Index, Rng&) { return TaylorAttention(); }; }},
    {"luong-dot", [](const Options&) -> MechanismFactory { return [](Index, Rng&) { return LuongDot(); }; }},
    {"luong-general", [](const Options& o) { return with_parameters<LuongGeneral>("luong-general", o); }},
    {"luong-concat", [](const Options& o) { return with_parameters<LuongConcat>("luong-concat", o); }},
    {"luong-location", location},
    {"bahdanau", [](const Options& o) { return with_parameters<BahdanauAttention>("bahdanau", o); }},
    {"cosine", [](const Options& o) { return with_parameters<CosineAttention>("cosine", o); }},
    {"window", window},
    {"strided", strided},
    {"fixed", fixed},
    {"top-k", [](const Options& o) -> MechanismFactory { return [o](Index, Rng&) { return TopKAttention(o.top_k); }; }},
    {"lsh", lsh},
    {"favor", favor},
    {"linformer", linformer, false}};

}  // namespace

const std::vector<std::string>& mechanism_names(bool causal) {
  const auto list = [](bool only_causal) {
    std::vector<std::string> names;
    for (const Named& m : kMechanisms)
      if (m.causal || !only_causal) names.emplace_back(m.name);
    return names;
  };
  static const std::vector<std::string> can_be_causal = list(true), all = list(false);
  return causal ? can_be_causal : all;
}

MechanismFactory mechanism_by_name(std::string_view name, const MechanismOptions& options) {
  std::string all;
  for (const Named& m : kMechanisms) {
    if (m.name == name) {
      require(m.causal || !options.causal, "attention: ", m.name,
              " has no causal form: its rows of keys mix all positions; it is for encoders");
      return m.make(options);
    }
    if (m.causal || !options.causal) all += (all.empty() ? "" : ", ") + std::string(m.name);
  }
  fail("attention: the mechanism is '", std::string(name), "'; it must be one of ", all);
}

}  // namespace heed

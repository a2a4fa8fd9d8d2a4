// LoRA: the linear maps of a model, their adapters, and merging.
#include <algorithm>
#include <cmath>
#include <heed/core/check.hpp>
#include <heed/layers/lora.hpp>
#include <heed/layers/model_config.hpp>
#include <map>
#include <set>

namespace heed {
namespace {

constexpr const char* kAddLora = "add_lora";

// The names of the maps in a stacked matrix, by the last part of its layer's path.
const std::map<std::string_view, std::vector<std::string_view>>& map_names() {
  static const std::map<std::string_view, std::vector<std::string_view>> names = {
      {"qkv", {"q", "k", "v"}}, {"kv", {"k", "v"}}, {"up", {"gate", "up"}}};
  return names;
}

// PEFT's names of target modules (peft/utils/constants.py), as names of heed.
const std::map<std::string_view, std::vector<std::string_view>>& peft_names() {
  static const std::map<std::string_view, std::vector<std::string_view>> names = {{"q_proj", {"q"}},
                                                                                  {"k_proj", {"k"}},
                                                                                  {"v_proj", {"v"}},
                                                                                  {"o_proj", {"proj"}},
                                                                                  {"gate_proj", {"gate"}},
                                                                                  {"up_proj", {"up"}},
                                                                                  {"down_proj", {"down"}},
                                                                                  {"c_attn", {"qkv"}},
                                                                                  {"c_proj", {"proj", "down"}},
                                                                                  {"c_fc", {"up"}},
                                                                                  {"query", {"q"}},
                                                                                  {"key", {"k"}},
                                                                                  {"value", {"v"}},
                                                                                  {"dense", {"proj", "up", "down"}}};
  return names;
}

std::string_view last_part(std::string_view path) { return path.substr(path.rfind('.') + 1); }

std::string map_name(const std::string& layer, std::size_t part) {
  const auto found = map_names().find(last_part(layer));
  if (found == map_names().end() || part >= found->second.size()) return layer + "." + std::to_string(part);
  const std::string_view name = found->second[part];
  return layer.substr(0, layer.size() - found->first.size()).append(name);
}

std::vector<std::string> words_of(const std::string& list) {
  std::vector<std::string> words;
  for (std::size_t begin = 0; begin <= list.size();) {
    const std::size_t end = std::min(list.find(',', begin), list.size());
    words.push_back(list.substr(begin, end - begin));
    begin = end + 1;
  }
  return words;
}

bool is_named(const LinearMap& map, std::string_view target) {
  return map.name == target || (map.name.size() > target.size() && map.name.ends_with(target) &&
                                map.name[map.name.size() - target.size() - 1] == '.');
}

// The last parts of all names, for a message.
std::string names_of(const std::vector<LinearMap>& maps) {
  std::vector<std::string> names;
  for (const LinearMap& map : maps)
    if (const std::string name(last_part(map.name)); std::ranges::find(names, name) == names.end())
      names.push_back(name);
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ", ") + name;
  return text;
}

bool is_in_blocks(const LinearMap& map) {
  return map.layer.starts_with("blocks.") || map.layer.find(".blocks.") != std::string::npos;
}

// The indices of the maps in blocks, or of all maps of a model without blocks.
std::set<std::size_t> all_maps(const std::vector<LinearMap>& maps, bool whole) {
  std::set<std::size_t> found;
  const bool has_blocks = std::ranges::any_of(maps, is_in_blocks);
  for (std::size_t i = 0; i < maps.size(); ++i) {
    if (has_blocks && !is_in_blocks(maps[i])) continue;
    const bool stacked = maps[i].part < 0 && i + 1 < maps.size() && maps[i + 1].layer == maps[i].layer;
    if (maps[i].part < 0 ? whole || !stacked : !whole) found.insert(i);
  }
  return found;
}

// The indices of the maps that a target selects. The map «up» of swiglu has precedence over its layer «up».
std::set<std::size_t> selected(const std::vector<LinearMap>& maps, const std::string& target, bool whole) {
  if (target == "all" || target == "all-linear") return all_maps(maps, whole);
  std::set<std::size_t> found;
  const auto peft = peft_names().find(target);
  const std::vector<std::string_view> names =
      peft == peft_names().end() ? std::vector<std::string_view>{target} : peft->second;
  for (const std::string_view name : names)
    for (std::size_t i = 0; i < maps.size(); ++i)
      if (is_named(maps[i], name)) found.insert(i);
  for (const std::size_t i : std::set(found))
    if (maps[i].part >= 0 && maps[i].name == maps[i].layer)
      std::erase_if(found, [&](std::size_t j) { return maps[j].part < 0 && maps[j].layer == maps[i].layer; });
  return found;
}

void check_options(const LoraOptions& o) {
  require(o.rank >= 1, kAddLora, ": rank is ", o.rank, "; it must be 1 or more");
  require(o.alpha > 0 && std::isfinite(o.alpha), kAddLora, ": alpha is ", o.alpha, "; it must be above 0");
  require(o.dropout >= 0 && o.dropout < 1, kAddLora, ": dropout is ", o.dropout, "; it must be at least 0 and below 1");
}

DType adapter_type(const Linear& linear) {
  return linear.weight.dtype() == DType::float64 ? DType::float64 : DType::float32;
}

}  // namespace

void LoraOptions::fields(OptionFields& f) {
  f({"rank", "Rank of the adapters"}, rank, 1);
  f({"alpha", "The adapters' scale times their rank"}, alpha, OptionField::positive);
  f({"rslora", "Divide alpha by the square root of the rank"}, rslora);
  f({"lora_dropout", "Share of an adapter's inputs dropped in training"}, dropout);
  f({"targets", "Linear maps that get adapters: all, or names"}, targets);
  f.optional({"whole", "One adapter for queries, keys and values"}, whole);
}

std::vector<LinearMap> detail::linear_maps(const std::vector<NamedLayer<Linear>>& layers) {
  std::vector<LinearMap> maps;
  const auto add = [&maps](const NamedLayer<Linear>& l, std::string name, int part, ColumnRange columns) {
    LinearMap& map = maps.emplace_back(LinearMap{std::move(name), l.name, part, l.layer, columns});
    if (!l.layer->lora) return;
    const std::vector<ColumnRange>& adapted = l.layer->lora->columns;
    const auto same = [&](const ColumnRange& c) { return c.begin == columns.begin && c.count == columns.count; };
    const auto place = std::ranges::find_if(adapted, same);
    if (place != adapted.end()) map.adapter = static_cast<int>(place - adapted.begin());
  };
  for (const NamedLayer<Linear>& l : layers) {
    const Index out = l.layer->weight.dim(0);
    std::vector<Index> rows = l.parts;
    Index rest = out;
    for (const Index r : rows) rest -= r;
    if (rest > 0) rows.push_back(rest);
    add(l, l.name, -1, {0, out});
    if (rows.size() < 2) continue;
    ColumnRange columns;
    for (std::size_t i = 0; i < rows.size(); ++i) {
      columns.count = rows[i];
      add(l, map_name(l.name, i), static_cast<int>(i), columns);
      columns.begin += rows[i];
    }
  }
  return maps;
}

std::vector<LinearMap> detail::lora_targets(const std::vector<LinearMap>& maps, const LoraOptions& options) {
  check_options(options);
  std::set<std::size_t> found;
  for (const std::string& target : words_of(options.targets)) {
    const std::set<std::size_t> more = selected(maps, target, options.whole);
    require(!more.empty(), kAddLora, ": the target ", excerpt(target), " matches no linear map of the model; targets ",
            "must be all, or names of linear maps: ", names_of(maps));
    found.insert(more.begin(), more.end());
  }
  std::vector<LinearMap> targets;
  for (const std::size_t i : found) targets.push_back(maps[i]);
  return targets;
}

void detail::make_adapters(const std::vector<LinearMap>& maps, const LoraOptions& options) {
  check_options(options);
  std::map<Linear*, std::vector<ColumnRange>> layers;
  for (const LinearMap& map : maps) {
    require(!map.linear->lora, kAddLora, ": ", map.layer, " has adapters already; merge_lora() or remove_lora() ",
            "removes them");
    std::vector<ColumnRange>& columns = layers[map.linear];
    require(columns.empty() || columns.back().begin + columns.back().count <= map.columns.begin, kAddLora,
            ": the targets select ", map.layer, " and also ", map.name, " in it; they must select one of them");
    columns.push_back(map.columns);
  }
  for (auto& [linear, columns] : layers) {
    const DType type = adapter_type(*linear);
    Index rows = 0;
    for (const ColumnRange& c : columns) rows += c.count;
    const Index rank = options.rank, in = linear->weight.dim(1), adapters = static_cast<Index>(columns.size());
    linear->lora.emplace(LowRank{Parameter(Tensor::empty({adapters * rank, in}, type)),
                                 Parameter(Tensor::zeros({rows, rank}, type)), std::move(columns), options.alpha,
                                 options.rslora, options.dropout});
  }
}

void detail::init_adapters(const std::vector<NamedLayer<Linear>>& layers, Rng& rng) {
  for (const NamedLayer<Linear>& l : layers)
    if (l.layer->lora) init::kaiming_uniform_(l.layer->lora->a, rng, std::sqrt(5.0));
}

void detail::merge_adapters(const char* op, const std::vector<NamedLayer<Linear>>& layers, bool add) {
  const auto adapted = [](const NamedLayer<Linear>& l) { return l.layer->lora.has_value(); };
  require(std::ranges::any_of(layers, adapted), op, ": the model has no adapters; add_lora() makes them");
  for (const NamedLayer<Linear>& l : layers)
    require(!add || !adapted(l) || !is_quantized(l.layer->weight.dtype()), op, ": ", l.name, ".weight is ",
            l.layer->weight.dtype(),
            "; a merged weight must be float32, float64 or bfloat16: convert the model with to(model, DType::float32)");
  const NoTape no_tape;
  for (const NamedLayer<Linear>& l : layers) {
    if (!adapted(l)) continue;
    const LowRank& lora = *l.layer->lora;
    const Index rank = lora.rank();
    Index a = 0, b = 0;
    for (const ColumnRange& c : lora.columns) {
      Tensor rows = l.layer->weight.slice(0, c.begin, c.begin + c.count);
      const Tensor change = matmul(lora.b.slice(0, b, b + c.count), lora.a.slice(0, a, a + rank)) * lora.scale();
      if (add) rows.copy_(rows.to(change.dtype()) + change);
      a += rank, b += c.count;
    }
    l.layer->lora.reset();
  }
}

}  // namespace heed

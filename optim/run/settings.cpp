// The options of a run as its checkpoint stores them.
#include <heed/data/text.hpp>
#include <heed/optim/run/settings.hpp>
#include <nlohmann/json.hpp>

namespace heed::detail {
namespace {

using Json = nlohmann::ordered_json;

Json to_json(const RunOptions& o) {
  return {{"steps", o.steps},
          {"accumulate", o.accumulate},
          {"shards", o.shards},
          {"grad_clip", o.grad_clip},
          {"precision", name_of(o.precision)},
          {"communication_dtype", name_of(o.ranks.dtype)},
          {"eval_every", o.evaluation.every},
          {"eval_batches", o.evaluation.batches},
          {"monitor", o.evaluation.monitor}};
}

// The options in a checkpoint. Older files have some of them as separate counters and texts.
Json settings_of(const Checkpoint& c) {
  if (const auto text = c.texts.find(kRunOptions); text != c.texts.end()) {
    const Json json = Json::parse(text->second, nullptr, false);
    require(json.is_object(), "resume: ", kRunOptions, " of ", c.source, " is damaged: it must be a JSON object");
    return json;
  }
  Json json = Json::object();
  for (const char* name : {"accumulate", "shards"})
    if (const auto found = c.counters.find(name); found != c.counters.end()) json[name] = found->second;
  for (const char* name : {"precision", "communication_dtype"})
    if (const auto found = c.texts.find(name); found != c.texts.end()) json[name] = found->second;
  return json;
}

std::string shown(const Json& value) {
  if (value.is_number_integer() && value >= kUntilStopped) return "unlimited";
  return printable(value.is_string() ? value.get<std::string>() : value.is_structured() ? "a list" : value.dump());
}

}  // namespace

std::string shortest(double number) { return Json(number).dump(); }

void store_settings(const RunOptions& options, Checkpoint& c) { c.texts[kRunOptions] = to_json(options).dump(); }

std::vector<std::string> changed_settings(const RunOptions& options, const Checkpoint& c) {
  const Json saved = settings_of(c), here = to_json(options);
  std::vector<std::string> changes;
  for (const auto& [name, value] : here.items())
    if (saved.contains(name) && saved[name] != value)
      changes.push_back(name + " " + shown(value) + ", before: " + shown(saved[name]));
  return changes;
}

}  // namespace heed::detail

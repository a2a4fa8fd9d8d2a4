// Checkpoints in memory: access, and storing and loading of models. The file is written and read in
// checkpoint_file.cpp.
#include <algorithm>
#include <cstring>
#include <heed/data/checkpoint.hpp>
#include <heed/data/text.hpp>
#include <set>

namespace heed {

using detail::ModelEntry;

template <class Map>
static const auto& find(const Checkpoint& c, const Map& map, const char* kind, const std::string& name) {
  const auto place = map.find(name);
  require(place != map.end(), "checkpoint: ", c.source, " has no ", kind, " ", name);
  return place->second;
}

const Tensor& Checkpoint::tensor(const std::string& path) const { return find(*this, tensors, "tensor", path); }
std::uint64_t Checkpoint::counter(const std::string& name) const { return find(*this, counters, "counter", name); }
const std::string& Checkpoint::text(const std::string& name) const { return find(*this, texts, "text", name); }
const std::string& Checkpoint::blob(const std::string& name) const { return find(*this, blobs, "blob", name); }

namespace {

// The names in one file and the kind of each.
class NamesInFile {
 public:
  explicit NamesInFile(const char* op) : op_(op) {}

  void add_root(const char* kind, const std::string& name) {
    check_path(name);
    require(name.find('/') == std::string::npos, op_, ": ", name, " is in a section; only tensors may be in sections");
    note(name, kind);
  }

  void add_tensor(const std::string& path) {  // call in the order of names: x/y before x/y/z
    require(path.find('/') != std::string::npos, op_, ": the tensor ", path,
            " has no section; its name must be section/name");
    check_path(path);
    for (std::size_t end = path.find('/'); end != std::string::npos; end = path.find('/', end + 1)) {
      const auto other = kinds_.find(path.substr(0, end));
      require(other == kinds_.end(), op_, ": ", path.substr(0, end), " is the name of a ",
              other == kinds_.end() ? "" : other->second, " and of the section of the tensor ", path,
              "; names must differ");
    }
    note(path, "tensor");
  }

 private:
  const char* op_;
  std::map<std::string, const char*> kinds_;

  void check_path(const std::string& path) const {
    bool good = !path.empty() && path.find('\0') == std::string::npos;
    for (std::size_t begin = 0; good && begin <= path.size();) {
      const std::size_t end = std::min(path.find('/', begin), path.size());
      const std::string part = path.substr(begin, end - begin);
      good = !part.empty() && part != "." && part != "..";
      begin = end + 1;
    }
    require(good, op_, ": «", path, "» is not a valid name; its parts must not be empty, . or ..");
  }

  void note(const std::string& name, const char* kind) {
    const auto [other, is_new] = kinds_.try_emplace(name, kind);
    require(is_new, op_, ": ", name, " is the name of a ", other->second, " and of a ", kind, "; names must differ");
  }
};

}  // namespace

void check_names(const char* op, const Checkpoint& checkpoint) {
  NamesInFile names(op);
  for (const auto& counter : checkpoint.counters) names.add_root("counter", counter.first);
  for (const auto& [name, text] : checkpoint.texts) {
    names.add_root("text", name);
    require(text.find('\0') == std::string::npos, op, ": the text ", name, " has a zero byte; it must be a blob");
  }
  for (const auto& blob : checkpoint.blobs) names.add_root("blob", blob.first);
  for (const auto& tensor : checkpoint.tensors) names.add_tensor(tensor.first);
  for (const auto& tensor : checkpoint.late) {
    require(!checkpoint.tensors.contains(tensor.first), op, ": there are two tensors ", tensor.first,
            "; names must be unique");
    names.add_tensor(tensor.first);
  }
}

std::vector<detail::ModelEntry> detail::model_entries(const std::vector<Member>& members) {
  std::vector<ModelEntry> entries;
  std::map<const Storage*, std::size_t> seen;
  for (const Member& m : members) {
    if (m.parameter != nullptr) {
      const auto [place, is_new] = seen.try_emplace(m.parameter->storage(), entries.size());
      if (is_new) entries.push_back({{}, m.parameter->detach()});
      entries[place->second].names.push_back(m.path);
    } else if (m.buffer->defined()) {
      entries.push_back({{m.path}, m.buffer->detach()});
    }
  }
  return entries;
}

void detail::store_entries(Checkpoint& checkpoint, const std::vector<ModelEntry>& entries, const std::string& section) {
  for (const ModelEntry& entry : entries) {
    const std::string path = section + "/" + entry.names.front();
    require(checkpoint.tensors.emplace(path, entry.tensor).second, "store_model: the checkpoint already has a tensor ",
            path, "; names must be unique");
  }
}

// "blocks.0.weight" becomes "layers.0.weight" with {"blocks", "layers"}. Adds the matching rename to `used`.
static std::string renamed(const std::string& name, const LoadOptions& options, std::set<std::string>& used) {
  for (const auto& [from, to] : options.renames) {
    const bool whole = name == from;
    const bool beginning = !from.empty() && name.starts_with(from) && name.size() > from.size() &&
                           (from.back() == '.' || name[from.size()] == '.');
    if (!whole && !beginning) continue;
    used.insert(from);
    return to + name.substr(from.size());
  }
  return name;
}

namespace {

struct Found {
  std::string name;  // in the checkpoint
  const Tensor* tensor = nullptr;
};

}  // namespace

// The tensors of a section by their names in the model.
static std::map<std::string, Found> section_of(const char* op, const Checkpoint& checkpoint,
                                               const LoadOptions& options) {
  std::map<std::string, Found> found;
  std::set<std::string> used;
  const std::string prefix = options.section + "/";
  for (auto place = checkpoint.tensors.lower_bound(prefix); place != checkpoint.tensors.end(); ++place) {
    if (!place->first.starts_with(prefix)) break;
    const std::string name = place->first.substr(prefix.size());
    const std::string target = renamed(name, options, used);
    const auto [other, is_new] = found.try_emplace(target, Found{name, &place->second});
    require(is_new, op, ": ", printable(other->second.name), " and ", printable(name), " of ", checkpoint.source,
            " are both renamed to ", printable(target), "; the new names must be unique");
  }
  require(!found.empty(), op, ": ", checkpoint.source, " has no tensors in the section ", options.section);
  for (const auto& [from, to] : options.renames) {
    require(used.count(from) == 1, "load_model: cannot rename ", from, " to ", to, ": no name in ", checkpoint.source,
            " is or begins with ", from);
  }
  return found;
}

static std::string listed(const std::vector<std::string>& names) {
  std::string list;
  for (const std::string& name : names) list += (list.empty() ? "" : ", ") + printable(name);
  return list;
}

static bool same_values(const Tensor& a, const Tensor& b) {
  if (!(a.shape() == b.shape()) || a.dtype() != b.dtype()) return false;
  const Tensor x = a.dense(), y = b.dense();
  const std::size_t bytes = static_cast<std::size_t>(x.numel()) * size_of(x.dtype());
  return bytes == 0 || std::memcmp(x.raw(), y.raw(), bytes) == 0;
}

// Removes the tensor of an entry from `found`, under any of the entry's names, and checks its shape and dtype. Null if
// there is none.
static const Tensor* take(const Checkpoint& checkpoint, const ModelEntry& entry, const LoadOptions& options,
                          std::map<std::string, Found>& found) {
  Found taken;
  for (const std::string& name : entry.names) {
    const auto place = found.find(name);
    if (place == found.end()) continue;
    const Found here = place->second;
    found.erase(place);
    require(!taken.tensor || same_values(*taken.tensor, *here.tensor), "load_model: the model ties ", taken.name,
            " and ", here.name, ", but ", checkpoint.source, " has different values for them; they must be the same");
    if (!taken.tensor) taken = here;
  }
  if (!taken.tensor) return nullptr;
  const Tensor &x = *taken.tensor, &expected = entry.tensor;
  const bool convertible = options.convert && is_floating(x.dtype()) && is_floating(expected.dtype());
  require(x.shape() == expected.shape() && (x.dtype() == expected.dtype() || convertible), "load_model: ", taken.name,
          " is ", x.shape(), " ", x.dtype(), " in ", checkpoint.source, " but ", expected.shape(), " ",
          expected.dtype(), " in the model; they must agree");
  return taken.tensor;
}

LoadReport detail::load_entries(const Checkpoint& checkpoint, std::vector<ModelEntry>& entries,
                                const LoadOptions& options) {
  std::map<std::string, Found> found = section_of("load_model", checkpoint, options);
  std::vector<const Tensor*> values;
  LoadReport report;
  for (const ModelEntry& entry : entries) {
    values.push_back(take(checkpoint, entry, options, found));
    if (!values.back()) report.missing.push_back(entry.names.front());
  }
  for (const auto& [name, left] : found) report.unexpected.push_back(left.name);
  require(report.missing.empty() || options.allow_missing, "load_model: ", checkpoint.source, " lacks ",
          report.missing.empty() ? "" : listed(report.missing), ", which the model needs");
  require(report.unexpected.empty() || options.allow_unexpected, "load_model: ", checkpoint.source, " has ",
          report.unexpected.empty() ? "" : listed(report.unexpected), ", which the model lacks");
  for (std::size_t i = 0; i < entries.size(); ++i) {
    if (values[i]) entries[i].tensor.copy_(*values[i]);
  }
  return report;
}

void detail::load_buffers(const Checkpoint& checkpoint, const std::vector<NamedBuffer>& buffers,
                          const std::string& section) {
  std::map<std::string, Found> found = section_of("load_state", checkpoint, {.section = section});
  std::vector<Tensor> values;
  for (const NamedBuffer& b : buffers) {
    const auto place = found.find(b.name);
    values.push_back(place == found.end() ? Tensor() : place->second.tensor->clone());
    require(values.back().defined() || !b.buffer->defined(), "load_state: ", checkpoint.source, " lacks ", section, "/",
            b.name, ", which the state needs");
    if (values.back().defined()) found.erase(place);
  }
  require(found.empty(), "load_state: ", checkpoint.source, " has ", section, "/",
          found.empty() ? "" : printable(found.begin()->first),
          ", which the state lacks; the mechanism and the number of layers must be the same");
  for (std::size_t i = 0; i < buffers.size(); ++i) *buffers[i].buffer = values[i];
}

}  // namespace heed

// Checkpoints in memory: access, and storing and loading of models. The file is written and read in
// checkpoint_file.cpp.
#include <cstring>
#include <heed/core/names.hpp>
#include <heed/data/checkpoint.hpp>
#include <heed/data/detail/content_hash.hpp>
#include <heed/data/text.hpp>
#include <set>

namespace heed {

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
    const std::string parts = "/" + path + "/";  // each part between two slashes
    bool good = path.find('\0') == path.npos;
    for (const char* bad : {"//", "/./", "/../"}) good = good && parts.find(bad) == parts.npos;
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

void detail::store_members(Checkpoint& checkpoint, const Members& members, const std::string& section) {
  const auto store = [&](const std::string& name, const Tensor& x) {
    const std::string path = section + "/" + name;
    require(checkpoint.tensors.emplace(path, x.detach()).second, "store_model: the checkpoint already has a tensor ",
            path, "; names must be unique");
  };
  for (const NamedParameter& p : merge_tied(members.parameters)) store(p.name, *p.parameter);
  for (const NamedBuffer& b : members.buffers)
    if (b.buffer->defined()) store(b.name, *b.buffer);
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

// The tensors of a checkpoint, with their names there, by their names in the model.
using Section = std::map<std::string, NamedTensor>;

static Section section_of(const char* op, const Checkpoint& checkpoint, const LoadOptions& options) {
  Section found;
  std::set<std::string> used;
  const std::string prefix = options.section + "/";
  for (auto place = checkpoint.tensors.lower_bound(prefix); place != checkpoint.tensors.end(); ++place) {
    if (!place->first.starts_with(prefix)) break;
    const std::string name = place->first.substr(prefix.size());
    const std::string target = renamed(name, options, used);
    const auto [other, is_new] = found.try_emplace(target, NamedTensor{name, place->second});
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

static bool same_values(const Tensor& a, const Tensor& b) {
  if (!(a.shape() == b.shape()) || a.dtype() != b.dtype()) return false;
  const Tensor x = a.dense(), y = b.dense();
  const std::size_t bytes = bytes_of(x.dtype(), x.numel());
  return bytes == 0 || std::memcmp(x.memory(), y.memory(), bytes) == 0;
}

// Removes a tensor of the model from `found`, under any of its names, and checks its shape and dtype. Undefined if
// there is none.
static Tensor take(const Checkpoint& checkpoint, const std::vector<std::string>& names, const Tensor& expected,
                   const LoadOptions& options, Section& found) {
  NamedTensor taken;
  for (const std::string& name : names) {
    auto here = found.extract(name);
    if (here.empty()) continue;
    const NamedTensor& other = here.mapped();
    require(!taken.tensor.defined() || same_values(taken.tensor, other.tensor), "load_model: the model ties ",
            taken.name, " and ", other.name, ", but ", checkpoint.source,
            " has different values for them; they must be the same");
    if (!taken.tensor.defined()) taken = other;
  }
  const Tensor& x = taken.tensor;
  if (!x.defined()) return {};
  const bool convertible = options.convert && is_floating(x.dtype()) && is_floating(expected.dtype());
  require(x.shape() == expected.shape() && (x.dtype() == expected.dtype() || convertible), "load_model: ", taken.name,
          " is ", x.shape(), " ", x.dtype(), " in ", checkpoint.source, " but ", expected.shape(), " ",
          expected.dtype(), " in the model; they must agree");
  return x;
}

LoadReport detail::load_members(const Checkpoint& checkpoint, const Members& members, const LoadOptions& options) {
  Section found = section_of("load_model", checkpoint, options);
  std::vector<std::pair<Tensor, Tensor>> copies;  // to, from
  LoadReport report;
  const auto load = [&](const std::vector<std::string>& names, const Tensor& to) {
    const Tensor from = take(checkpoint, names, to, options, found);
    if (from.defined())
      copies.emplace_back(to.detach(), from);
    else
      report.missing.push_back(names.front());
  };
  for (const NamedParameter& p : merge_tied(members.parameters)) {
    std::vector<std::string> names = {p.name};
    names.insert(names.end(), p.others.begin(), p.others.end());
    load(names, *p.parameter);
  }
  for (const NamedBuffer& b : members.buffers)
    if (b.buffer->defined()) load({b.name}, *b.buffer);
  for (const auto& [name, left] : found) report.unexpected.push_back(left.name);
  require(report.missing.empty() || options.allow_missing || !checkpoint.texts.contains(kBaseHash),
          "load_model: ", checkpoint.source,
          " has only the trained part of a model; load_trainable() loads it into a model with the ",
          "same base and adapters");
  require(report.missing.empty() || options.allow_missing, "load_model: ", checkpoint.source, " lacks ",
          joined(report.missing, printable), ", which the model needs");
  require(report.unexpected.empty() || options.allow_unexpected, "load_model: ", checkpoint.source, " has ",
          joined(report.unexpected, printable), ", which the model lacks");
  for (auto& [to, from] : copies) to.copy_(from);
  return report;
}

namespace {

// The parts of a model that training changes, and the others.
struct SplitMembers {
  detail::Members trainable, base;

  explicit SplitMembers(const detail::Members& members) {
    for (const NamedParameter& p : members.parameters)
      (p.parameter->requires_grad() ? trainable : base).parameters.push_back(p);
    base.buffers = members.buffers;
  }
  // Of names, dtypes, shapes and values.
  std::string base_hash() const {
    detail::ContentHash hash;
    for (const NamedParameter& p : detail::merge_tied(base.parameters)) hash.add(p.name), hash.add(*p.parameter);
    for (const NamedBuffer& b : base.buffers) hash.add(b.name), hash.add(*b.buffer);
    return hash.hex();
  }
};

}  // namespace

void detail::store_trainable(Checkpoint& checkpoint, const Members& members) {
  const SplitMembers split(members);
  require(!split.trainable.parameters.empty(), "store_trainable: all parameters of the model are frozen; at least one ",
          "must be trained");
  store_members(checkpoint, split.trainable, "model");
  checkpoint.texts[kBaseHash] = split.base_hash();
}

void detail::load_trainable(const Checkpoint& checkpoint, const Members& members) {
  const auto stored = checkpoint.texts.find(kBaseHash);
  require(stored != checkpoint.texts.end(), "load_trainable: ", checkpoint.source, " has a whole model, not only the ",
          "trained part of one; load_model() loads it");
  const SplitMembers split(members);
  const std::string hash = split.base_hash();
  require(stored->second == hash, "load_trainable: the hash of the base of ", checkpoint.source, " is ",
          printable(stored->second), " but that of this model is ", hash, "; load the base that the checkpoint was ",
          "trained on, with the same dtype");
  load_members(checkpoint, split.trainable, {});
}

void detail::load_buffers(const Checkpoint& checkpoint, const std::vector<NamedBuffer>& buffers,
                          const std::string& section) {
  Section found = section_of("load_state", checkpoint, {.section = section});
  std::vector<Tensor> values;
  for (const NamedBuffer& b : buffers) {
    const auto place = found.find(b.name);
    values.push_back(place == found.end() ? Tensor() : place->second.tensor.clone());
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

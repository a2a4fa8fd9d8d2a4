// Writes safetensors files.
#include <heed/core/names.hpp>
#include <heed/data/detail/disk.hpp>
#include <heed/data/text.hpp>
#include <heed/io/json.hpp>
#include <heed/io/safetensors.hpp>
#include <heed/io/safetensors_header.hpp>
//
#include <algorithm>
#include <set>
#include <utility>

namespace heed {
namespace {

using detail::SafetensorsEntry;
constexpr const char* kSaveSafetensors = "save_safetensors";

// A tensor that is written, and its place in the file.
struct WrittenTensor {
  SafetensorsEntry entry = {};
  Tensor values = {};
};

bool are_tied(const Tensor& a, const Tensor& b) {
  return a.shares_storage(b) && a.offset() == b.offset() && a.shape() == b.shape() && a.strides() == b.strides() &&
         a.dtype() == b.dtype();
}

// The type in which a tensor is written.
StoredType written_type(const Tensor& x, const SafetensorsOptions& options) {
  return options.type && is_floating(x.dtype()) ? *options.type : stored_type_for(x.dtype());
}

void check_options(const SafetensorsOptions& options) {
  using enum StoredType;
  const std::optional<StoredType> type = options.type;
  require(!type || *type == f64 || *type == f32 || *type == f16 || *type == bf16, kSaveSafetensors, ": the type is ",
          type ? name_of(*type) : "", "; it must be F64, F32, F16 or BF16");
  for (const auto& [key, text] : options.metadata)
    require(!find_invalid_utf8(key) && !find_invalid_utf8(text), kSaveSafetensors, ": the metadata ", excerpt(key),
            " = ", excerpt(text), " is not UTF-8");
}

// The tensors to write, each once, without offsets. Adds the other names of tied tensors to `metadata`, unless they
// are keys there.
std::vector<WrittenTensor> untied(const std::vector<NamedTensor>& tensors, const SafetensorsOptions& options,
                                  std::map<std::string, std::string>& metadata) {
  std::vector<WrittenTensor> written;
  std::multimap<const detail::Storage*, std::size_t> of_storage;
  std::set<std::string> names;
  for (const NamedTensor& named : tensors) {
    const std::string& name = named.name;
    const Tensor& x = named.tensor;
    require(x.defined(), kSaveSafetensors, ": ", excerpt(name), " is undefined; it must have values");
    require(!find_invalid_utf8(name) && name != detail::kSafetensorsMetadata, kSaveSafetensors, ": ", excerpt(name),
            " is not a valid name; names must be UTF-8 and not ", detail::kSafetensorsMetadata);
    require(names.insert(name).second, kSaveSafetensors, ": there are two tensors ", excerpt(name),
            "; names must be unique");
    const auto [begin, end] = of_storage.equal_range(x.storage());
    const auto other = std::find_if(begin, end, [&](const auto& o) { return are_tied(written[o.second].values, x); });
    if (other != end) {
      metadata.emplace(name, written[other->second].entry.name);
      continue;
    }
    of_storage.emplace(x.storage(), written.size());
    written.push_back({{.name = name, .type = written_type(x, options), .shape = x.shape()}, x});
  }
  return written;
}

// Wider types first, so that all values are aligned, then by name: the order of the safetensors package.
void sort_and_place(std::vector<WrittenTensor>& written) {
  using enum StoredType;
  const auto rank = [](StoredType type) {
    constexpr StoredType kOrder[] = {f64, f32, i32, bf16, f16, boolean};
    return std::ranges::find(kOrder, type) - std::begin(kOrder);
  };
  std::ranges::sort(written, [&](const WrittenTensor& a, const WrittenTensor& b) {
    return std::pair(rank(a.entry.type), std::string_view(a.entry.name)) <
           std::pair(rank(b.entry.type), std::string_view(b.entry.name));
  });
  std::size_t at = 0;
  for (WrittenTensor& w : written) {
    const std::optional<std::size_t> bytes = stored_bytes(w.entry.type, w.entry.shape);
    w.entry.begin = at;
    require(bytes && !__builtin_add_overflow(at, *bytes, &at), kSaveSafetensors, ": ", excerpt(w.entry.name), " is ",
            w.values, "; the file would have more bytes than can be counted");
    w.entry.end = at;
  }
}

void write_values(detail::NewFile& out, const WrittenTensor& w) {
  if (w.entry.type == stored_type_for(w.values.dtype())) {
    const Tensor dense = w.values.detach().dense();
    return out.write(dense.raw(), w.entry.end - w.entry.begin);
  }
  std::vector<std::byte> bytes;
  try {
    bytes = store(w.values.detach(), w.entry.type);
  } catch (const Error& e) {
    fail(kSaveSafetensors, ": ", excerpt(w.entry.name), " cannot be written as ", name_of(w.entry.type), ": ",
         e.what());
  }
  out.write(bytes.data(), bytes.size());
}

// Writes one file.
void write_file(const std::filesystem::path& file, std::vector<WrittenTensor> written,
                const std::map<std::string, std::string>& metadata) {
  sort_and_place(written);
  std::vector<SafetensorsEntry> entries;
  for (const WrittenTensor& w : written) entries.push_back(w.entry);
  const std::string header = detail::safetensors_header(entries, metadata);
  const std::size_t length = header.size() - detail::kSafetensorsLength;
  require(length <= detail::kSafetensorsMaxHeader, kSaveSafetensors, ": ", file.string(), " would have a header of ",
          length, " bytes; it must have at most ", detail::kSafetensorsMaxHeader);
  detail::NewFile out(kSaveSafetensors, file, header.size() + (written.empty() ? 0 : entries.back().end));
  out.write(header.data(), header.size());
  for (const WrittenTensor& w : written) write_values(out, w);
  out.finish();
}

// The tensors in files of at most `max_bytes` bytes of values, in their order. A larger tensor has its own file. These
// are the files of transformers (split_torch_state_dict_into_shards() of huggingface_hub).
std::vector<std::vector<WrittenTensor>> shards_of(std::vector<WrittenTensor> written, std::size_t max_bytes) {
  std::vector<std::vector<WrittenTensor>> shards;
  std::vector<WrittenTensor> open;
  std::size_t size = 0;
  for (WrittenTensor& w : written) {
    const std::size_t bytes = stored_bytes(w.entry.type, w.entry.shape).value_or(max_bytes);
    if (bytes > max_bytes) {
      shards.push_back({std::move(w)});
      continue;
    }
    if (bytes > max_bytes - size) {
      shards.push_back(std::exchange(open, {}));
      size = 0;
    }
    open.push_back(std::move(w));
    size += bytes;
  }
  if (!open.empty() || shards.empty()) shards.push_back(std::move(open));
  return shards;
}

// The index of transformers: the file of each tensor, and the sizes of all.
std::string index_text(const std::vector<std::vector<WrittenTensor>>& shards) {
  std::map<std::string, std::string> file_of;
  std::int64_t bytes = 0, parameters = 0;
  for (std::size_t i = 0; i < shards.size(); ++i) {
    for (const WrittenTensor& w : shards[i]) {
      file_of[w.entry.name] = detail::shard_name(i + 1, shards.size());
      bytes += static_cast<std::int64_t>(stored_bytes(w.entry.type, w.entry.shape).value_or(0));
      parameters += w.values.numel();
    }
  }
  using detail::JsonValue;
  JsonValue index = JsonValue::object(), sizes = JsonValue::object(), map = JsonValue::object();
  sizes.set("total_parameters", JsonValue::of_integer(parameters));
  sizes.set("total_size", JsonValue::of_integer(bytes));
  for (const auto& [name, file] : file_of) map.items.push_back(JsonValue::of(file)), map.keys.push_back(name);
  index.set("metadata", std::move(sizes));
  index.set("weight_map", std::move(map));
  return detail::json_text(index);
}

}  // namespace

void detail::write_safetensors(const std::filesystem::path& file, const std::vector<NamedTensor>& tensors,
                               const SafetensorsOptions& options) {
  check_options(options);
  std::map<std::string, std::string> metadata = options.metadata;
  write_file(file, untied(tensors, options, metadata), metadata);
}

std::string detail::shard_name(std::size_t number, std::size_t count) {
  const auto digits = [](std::size_t n) {
    const std::string text = std::to_string(n);
    return std::string(5 - std::min<std::size_t>(text.size(), 5), '0') + text;
  };
  return "model-" + digits(number) + "-of-" + digits(count) + ".safetensors";
}

void detail::write_safetensors_shards(const PathOfFile& path_of, const std::vector<NamedTensor>& tensors,
                                      std::size_t max_bytes, const SafetensorsOptions& options) {
  check_options(options);
  std::map<std::string, std::string> metadata = options.metadata;
  std::vector<std::vector<WrittenTensor>> shards = shards_of(untied(tensors, options, metadata), max_bytes);
  if (shards.size() == 1) return write_file(path_of("model.safetensors"), std::move(shards[0]), metadata);
  const std::string index = index_text(shards);
  for (std::size_t i = 0; i < shards.size(); ++i)
    write_file(path_of(shard_name(i + 1, shards.size())), shards[i], metadata);
  replace_file(kSaveSafetensors, path_of("model.safetensors.index.json"), index);
}

void save_safetensors(const std::filesystem::path& file, const TensorsByName& tensors,
                      const SafetensorsOptions& options) {
  std::vector<NamedTensor> all;
  for (const auto& [name, x] : tensors) all.push_back({name, x});
  detail::write_safetensors(file, all, options);
}

void export_safetensors(const std::filesystem::path& file, const Checkpoint& checkpoint, const std::string& section,
                        const SafetensorsOptions& options) {
  const std::string prefix = section + "/";
  std::vector<NamedTensor> all;
  for (const auto& [path, x] : checkpoint.tensors)
    if (path.starts_with(prefix)) all.push_back({path.substr(prefix.size()), x});
  for (const auto& [path, late] : checkpoint.late)
    if (path.starts_with(prefix)) all.push_back({path.substr(prefix.size()), late.values()});
  require(!all.empty(), "export_safetensors: ", checkpoint.source, " has no tensors in the section ", section);
  detail::write_safetensors(file, all, options);
}

std::vector<NamedTensor> detail::named_tensors(const Members& members) {
  std::vector<NamedTensor> all;
  for (const NamedParameter& p : members.parameters) all.push_back({p.name, p.parameter->detach()});
  for (const NamedBuffer& b : members.buffers)
    if (b.buffer->defined()) all.push_back({b.name, b.buffer->detach()});
  return all;
}

}  // namespace heed

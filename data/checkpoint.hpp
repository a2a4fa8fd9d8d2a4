// Checkpoints: a value in memory, and one HDF5 file that holds it. docs/checkpoint_format.md specifies the file.
//
// Example:
//
//   Rng rng(1);
//   Linear model(4, 2, rng);
//   Checkpoint checkpoint;
//   store_model(checkpoint, model);
//   checkpoint.counters["step"] = 1;
//   save_checkpoint("linear.h5", checkpoint);
//   load_model(load_checkpoint("linear.h5"), model);
#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <heed/core/members.hpp>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace heed {

// What a training run needs to go on. Names are paths: "model/blocks.0.norm.weight" is the tensor blocks.0.norm.weight
// of the section "model"; counters, texts and blobs stand outside of sections: "step", "config", "tokenizer".
struct Checkpoint {
  // A tensor whose values are asked for once, when the file is written, one tensor at a time: what lies elsewhere, or
  // is too large to be there twice. They must have this shape and dtype.
  struct Late {
    Shape shape;
    DType dtype = DType::float32;
    std::function<Tensor()> values = {};
  };

  TensorsByName tensors = {};  // any dtype and shape; handles: the values are read when it is saved
  std::map<std::string, Late, std::less<>> late = {};  // more of them, under other names; none in one that was loaded
  std::map<std::string, std::uint64_t> counters = {};  // step, seed, positions in random streams and data
  std::map<std::string, std::string> texts = {};       // UTF-8 without zero bytes; configurations are JSON
  std::map<std::string, std::string> blobs = {};       // any bytes
  std::string source = "the checkpoint";          // the file it was loaded from, for messages; not saved
  std::uint64_t hash = 0;                         // of that file; not saved

  // What must be there: an Error names it and the file otherwise.
  const Tensor& tensor(const std::string& path) const;
  std::uint64_t counter(const std::string& name) const;
  const std::string& text(const std::string& name) const;
  const std::string& blob(const std::string& name) const;
};

// Writes the file so that `path` holds, at every instant and whatever happens, either all of its old content or all of
// the new: a temporary file `path`.tmp beside it is written, synced and renamed. Tensors of 64 KiB or more are written
// from where they lie (of those with gaps, one at a time is copied); the rest of the file is made in memory. The same
// checkpoint gives the same bytes. Error: no such folder, no space, another program saving there, ...;
// then the previous file is as it was.
void save_checkpoint(const std::filesystem::path& path, const Checkpoint& checkpoint);

// Throws the Error, but that it begins with `op`, with which save_checkpoint() refuses names and texts: before long
// work for that file. Tensors need no values yet.
void check_names(const char* op, const Checkpoint& checkpoint);

// Error, one sentence: missing, empty, truncated, damaged (by its hash or its structure), not a heed checkpoint, of a
// newer format, holding what no tensor can hold or what lies elsewhere. Safe for files of unknown origin: HDF5 sees no
// byte of it, and memory stays below twice the file and 64 MiB. Tensors of 64 KiB or more share one block of memory of
// the file's size, which stays as long as one of them.
Checkpoint load_checkpoint(const std::filesystem::path& path);

struct LoadOptions {
  bool allow_missing = false;     // parameters that the checkpoint lacks keep their values
  bool allow_unexpected = false;  // tensors that the model lacks are ignored
  bool convert = false;           // float32, float64 and bfloat16 are converted into each other
  // {in the checkpoint, in the model}: whole names, or beginnings up to a dot: {"transformer.h", "blocks"}. First match
  // wins.
  std::vector<std::pair<std::string, std::string>> renames = {};
  std::string section = "model";
};

struct LoadReport {
  std::vector<std::string> missing = {};     // names of the model
  std::vector<std::string> unexpected = {};  // names of the checkpoint
};

namespace detail {

// Checkpoint::hash as the file tells it, of which nothing else is read. Error as of load_checkpoint().
std::uint64_t hash_of_checkpoint(const std::filesystem::path& path);

// A tensor of a model with all its names: a tied parameter has several.
struct ModelEntry {
  std::vector<std::string> names = {};
  Tensor tensor = {};
};

std::vector<ModelEntry> model_entries(const std::vector<Member>& members);
void store_entries(Checkpoint& checkpoint, const std::vector<ModelEntry>& entries, const std::string& section);
void load_buffers(const Checkpoint& checkpoint, const std::vector<NamedBuffer>& buffers, const std::string& section);
LoadReport load_entries(const Checkpoint& checkpoint, std::vector<ModelEntry>& entries, const LoadOptions& options);

}  // namespace detail

// Adds all parameters and buffers of a model, by their names; a tied parameter once, under its first name. The
// checkpoint then shares the model's values: save it before the model is trained on.
template <class M>
void store_model(Checkpoint& checkpoint, M& model, const std::string& section = "model") {
  detail::store_entries(checkpoint, detail::model_entries(detail::members_of(model)), section);
}

// Copies values into a model of the same names, shapes and dtypes. A tied parameter may be there under any of its
// names. Checks everything first: after an Error (missing or unexpected names, other shapes or dtypes) the model is
// unchanged.
template <class M>
LoadReport load_model(const Checkpoint& checkpoint, M& model, const LoadOptions& options = {}) {
  std::vector<detail::ModelEntry> entries = detail::model_entries(detail::members_of(model));
  return detail::load_entries(checkpoint, entries, options);
}

// Adds what decoding keeps between calls: of a state (AttentionState, for one) or of a vector of them, a model's. The
// checkpoint shares the values: save it before decoding goes on.
template <class S>
void store_state(Checkpoint& checkpoint, S& state, const std::string& section = "state") {
  for (const NamedBuffer& b : named_buffers(state))
    if (b.buffer->defined()) checkpoint.tensors[section + "/" + b.name] = b.buffer->detach();
}

// Gives a fresh state of the same kind, as GPT::make_states() makes, what store_state() kept: it goes on with the same
// bits. Error, with the state as it was: the checkpoint has no such section, or one of another kind.
template <class S>
void load_state(const Checkpoint& checkpoint, S& state, const std::string& section = "state") {
  detail::load_buffers(checkpoint, named_buffers(state), section);
}

// A checkpoint of nothing but a model's values, and its configuration (JSON) where given.
template <class M>
void export_weights(const std::filesystem::path& path, M& model, const std::string& config = {}) {
  Checkpoint checkpoint;
  store_model(checkpoint, model);
  if (!config.empty()) checkpoint.texts["config"] = config;
  save_checkpoint(path, checkpoint);
}

}  // namespace heed

// Checkpoints: a value in memory, and a single HDF5 file that stores it. docs/checkpoint_format.md specifies the file.
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

// The data that a training run needs to continue. Names of tensors are paths: "model/blocks.0.norm.weight" is the
// tensor blocks.0.norm.weight of the section "model". Counters, texts and blobs are outside of sections: "step",
// "config", "tokenizer".
struct Checkpoint {
  // A tensor whose values are produced when the file is written, one tensor at a time. For values that are stored
  // elsewhere or are too large for a second copy. values() is called once and must return this shape and dtype.
  struct Late {
    Shape shape;                          // of the tensor that values() returns
    DType dtype = DType::float32;         // of the same tensor
    std::function<Tensor()> values = {};  // must be set
  };

  TensorsByName tensors = {};  // any dtype and shape; handles: the values are read when the checkpoint is saved
  std::map<std::string, Late, std::less<>> late = {};  // more tensors, under other names; empty in a loaded checkpoint
  std::map<std::string, std::uint64_t> counters = {};  // step, seed, positions in random streams and data
  std::map<std::string, std::string> texts = {};       // UTF-8 without zero bytes; configurations are JSON
  std::map<std::string, std::string> blobs = {};       // any bytes
  std::string source = "the checkpoint";               // the file it was loaded from, for messages; not saved
  std::uint64_t hash = 0;                              // hash of that file; not saved

  // Access to required entries. Throws Error, which names the entry and the file, if it is missing.
  const Tensor& tensor(const std::string& path) const;
  std::uint64_t counter(const std::string& name) const;
  const std::string& text(const std::string& name) const;
  const std::string& blob(const std::string& name) const;
};

// Writes the checkpoint to a file. At every moment `path` has either all of its old content or all of the new: a
// temporary file `path`.tmp in the same folder is written, synced and renamed. Tensors of 64 KiB or more are written
// directly from their memory (a tensor with gaps is copied, one at a time); the rest of the file is built in memory.
// Equal checkpoints give equal bytes. Throws Error if the folder does not exist, the disk is full, another program is
// saving to the path, and so on; the previous file is then unchanged.
void save_checkpoint(const std::filesystem::path& path, const Checkpoint& checkpoint);

// Throws the same Error as save_checkpoint() for invalid names and texts, but beginning with `op`. Call it before a
// long computation. Tensors need no values yet.
void check_names(const char* op, const Checkpoint& checkpoint);

// Loads a checkpoint. Throws Error if the file is missing, empty, truncated, damaged (by its hash or its structure),
// not a heed checkpoint, or of a newer format. Also throws Error for values that a tensor cannot hold or that are
// stored in other files. Safe for files of unknown origin: HDF5 parses none of their bytes, and memory stays below
// twice the size of the file plus 64 MiB. Tensors of 64 KiB or more share one block of memory of the size of the file,
// which exists as long as any of them.
Checkpoint load_checkpoint(const std::filesystem::path& path);

// How names and dtypes of a checkpoint may differ from those of the model.
struct LoadOptions {
  bool allow_missing = false;     // parameters that the checkpoint lacks keep their values
  bool allow_unexpected = false;  // tensors that the model lacks are ignored
  bool convert = false;           // converts between float32, float64 and bfloat16
  // Pairs {name in the checkpoint, name in the model}: whole names, or prefixes that end before a dot, such as
  // {"transformer.h", "blocks"}. The first match applies.
  std::vector<std::pair<std::string, std::string>> renames = {};
  std::string section = "model";
};

// The names that did not match.
struct LoadReport {
  std::vector<std::string> missing = {};     // names of the model
  std::vector<std::string> unexpected = {};  // names of the checkpoint
};

namespace detail {

// Reads only Checkpoint::hash from a file. Throws Error as load_checkpoint().
std::uint64_t hash_of_checkpoint(const std::filesystem::path& path);

void store_members(Checkpoint& checkpoint, const Members& members, const std::string& section);
LoadReport load_members(const Checkpoint& checkpoint, const Members& members, const LoadOptions& options);
void load_buffers(const Checkpoint& checkpoint, const std::vector<NamedBuffer>& buffers, const std::string& section);
// A text of a checkpoint that has only the trainable part of a model: the hash of the other values, in hexadecimal.
inline constexpr const char* kBaseHash = "base_hash";
void store_trainable(Checkpoint& checkpoint, const Members& members);
void load_trainable(const Checkpoint& checkpoint, const Members& members);

}  // namespace detail

// Adds all parameters and buffers of a model, by name. A tied parameter is added once, under its first name. The
// checkpoint shares the values of the model: save it before training continues.
template <class M>
void store_model(Checkpoint& checkpoint, M& model, const std::string& section = "model") {
  detail::store_members(checkpoint, detail::members_of(model), section);
}

// Copies values into a model with the same names, shapes and dtypes; `options` relax this. A tied parameter may have
// any of its names in the checkpoint. All checks precede the first change: after an Error (missing or unexpected names,
// other shapes or dtypes) the model is unchanged.
template <class M>
LoadReport load_model(const Checkpoint& checkpoint, M& model, const LoadOptions& options = {}) {
  return detail::load_members(checkpoint, detail::members_of(model), options);
}

// The same for a model that is partly frozen, such as one with adapters (layers/lora.hpp). Only the parameters that are
// not frozen are stored, with a hash of all other values of the model: the base. Throws Error if all are frozen.
template <class M>
void store_trainable(Checkpoint& checkpoint, M& model) {
  detail::store_trainable(checkpoint, detail::members_of(model));
}

// Loads what store_trainable() stored into a model with the same base and adapters. All checks precede the first
// change. Throws Error as load_model(), if the checkpoint has a whole model, and if the base is another one.
template <class M>
void load_trainable(const Checkpoint& checkpoint, M& model) {
  detail::load_trainable(checkpoint, detail::members_of(model));
}

// Adds the decoding state of a layer, such as AttentionState, or of a model (a vector of states). The checkpoint shares
// the values: save it before decoding continues.
template <class S>
void store_state(Checkpoint& checkpoint, S& state, const std::string& section = "state") {
  for (const NamedBuffer& b : named_buffers(state))
    if (b.buffer->defined()) checkpoint.tensors[section + "/" + b.name] = b.buffer->detach();
}

// Loads the state that store_state() stored into a new state of the same kind, as made by GPT::make_states(). Decoding
// then continues with the same bits. Throws Error, and keeps `state` unchanged, if the checkpoint has no such section
// or the section is of another kind.
template <class S>
void load_state(const Checkpoint& checkpoint, S& state, const std::string& section = "state") {
  detail::load_buffers(checkpoint, named_buffers(state), section);
}

// Writes a checkpoint with only a model's values and, if given, its configuration (JSON).
template <class M>
void export_weights(const std::filesystem::path& path, M& model, const std::string& config = {}) {
  Checkpoint checkpoint;
  store_model(checkpoint, model);
  if (!config.empty()) checkpoint.texts["config"] = config;
  save_checkpoint(path, checkpoint);
}

}  // namespace heed

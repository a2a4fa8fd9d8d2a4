// A ConformanceOptions::save_and_load that writes the buffers of a state to a file and reads them.
#pragma once
#include <heed/data/checkpoint.hpp>
#include <heed/layers/attention/conformance.hpp>

#include "tests/data/temporary_folder.hpp"

namespace heed::test {

inline TensorsByName through_file(const TensorsByName& buffers) {
  const TemporaryFolder folder;
  Checkpoint saved;
  for (const auto& [name, tensor] : buffers) saved.tensors["state/" + name] = tensor;
  save_checkpoint(folder.path / "state.h5", saved);
  TensorsByName loaded;
  for (const auto& [name, tensor] : load_checkpoint(folder.path / "state.h5").tensors) loaded[name.substr(6)] = tensor;
  return loaded;
}

}  // namespace heed::test

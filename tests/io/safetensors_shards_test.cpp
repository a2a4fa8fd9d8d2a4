// Models in several safetensors files with an index, as transformers writes them.
#include <heed/io/safetensors.hpp>

#include "tests/data/temporary_folder.hpp"
#include "tests/support.hpp"
#include "tests/tools/paths.hpp"

using namespace heed;
using test::bytes_of;
using test::same_bits;
using test::TemporaryFolder;
namespace fs = std::filesystem;

TEST_CASE("safetensors: a model in several files, those of transformers byte for byte") {
  const TemporaryFolder folder;
  const auto path_of = [&](const std::string& name) { return folder.path / name; };
  const Tensor tied = Tensor::from({1, 2, 3, 4, 5, 6}, {3, 2});
  const std::vector<NamedTensor> tensors = {{"embed.weight", tied},  // 24 bytes
                                            {"norm.weight", Tensor::ones({2}, DType::bfloat16)},
                                            {"mlp.weight", Tensor::from({1, 2, 3, 4, 5, 6, 7, 8}, {2, 4})},
                                            {"ids", Tensor::from<std::int32_t>({7})},
                                            {"bias", Tensor::from({0.5})},
                                            {"last", Tensor::from<double>({0.25, -1})}};
  detail::write_safetensors_shards(path_of, tensors, 28);
  CHECK(test::files_in(folder.path) == 4);
  for (const auto& entry : fs::directory_iterator(fs::path(test::in_source("tests/reference/safetensors/shards")))) {
    INFO(entry.path().filename());
    CHECK(bytes_of(folder.path / entry.path().filename()) == bytes_of(entry.path()));
  }
  const TensorsByName loaded = load_safetensors(folder.path);
  CHECK(loaded.size() == tensors.size());
  for (const NamedTensor& x : tensors) CHECK(same_bits(loaded.at(x.name), x.tensor));
}

TEST_CASE("safetensors: one file without an index if all fits, and tied tensors in one of several files") {
  const TemporaryFolder folder;
  const auto path_of = [&](const std::string& name) { return folder.path / name; };
  const Tensor x = Tensor::from({1, 2}), y = Tensor::from({3, 4});
  detail::write_safetensors_shards(path_of, {{"x", x}, {"y", y}, {"z", x}}, 16);
  CHECK(test::files_in(folder.path) == 1);
  save_safetensors(folder.path / "all.safetensors", {{"x", x}, {"y", y}, {"z", x}});
  CHECK(bytes_of(path_of("model.safetensors")) == bytes_of(path_of("all.safetensors")));
  fs::remove(path_of("model.safetensors"));
  detail::write_safetensors_shards(path_of, {{"x", x}, {"y", y}, {"z", x}}, 15, {.type = StoredType::f16});
  CHECK(load_safetensors(path_of("model.safetensors")).size() == 2);
  fs::remove(path_of("model.safetensors"));
  detail::write_safetensors_shards(path_of, {{"x", x}, {"y", y}, {"z", x}}, 15);
  const SafetensorsFile file(folder.path);
  CHECK(load_safetensors(folder.path).size() == 2);
  CHECK(file.tensors().contains("x"));
  CHECK(file.metadata().at("z") == "x");
  detail::write_safetensors_shards([&](const std::string&) { return folder.path / "none.safetensors"; }, {}, 1);
  CHECK(load_safetensors(folder.path / "none.safetensors").empty());
}

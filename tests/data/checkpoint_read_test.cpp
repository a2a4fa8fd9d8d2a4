// Reading checkpoints that h5py and PyTorch wrote, and contents that no checkpoint may have.
#include <heed/data/checkpoint.hpp>
#include <heed/data/detail/checkpoint_hdf5.hpp>

#include "tests/data/checkpoint_exchange.hpp"
#include "tests/data/open_handles.hpp"

using namespace heed;
using namespace heed::test;
namespace fs = std::filesystem;

TEST_CASE("checkpoint Python: heed reads what h5py writes and the script seals") {
  const std::string python = python_with("h5py");
  if (python.empty()) return;
  const TemporaryFolder folder;
  exchange(python, "h5py_writes", folder.path);
  Checkpoint expected = exchanged();
  expected.texts["fixed"] = "abc";
  expected.tensors["model/nested/deep/x"] = Tensor::scalar(1);
  for (int i = 0; i < 100; ++i) expected.tensors["model/many/" + std::to_string(i)] = Tensor::scalar(i, DType::int32);
  for (const char* name : {"written.h5", "latest.h5", "v108.h5", "v110.h5", "ordered.h5", "added.h5"}) {
    INFO(name);
    const Checkpoint c = load_checkpoint(folder.path / name);
    CHECK(c.counters == expected.counters);
    CHECK(c.texts == expected.texts);
    CHECK(c.blobs == expected.blobs);
    REQUIRE(c.tensors.size() == expected.tensors.size());
    for (const auto& item : expected.tensors) {
      INFO(item.first);
      CHECK(same_bits(c.tensor(item.first), item.second));
    }
  }
}

TEST_CASE("checkpoint Python: contents that no checkpoint may have are errors that name them") {
  const std::string python = python_with("h5py");
  if (python.empty()) return;
  const TemporaryFolder folder;
  exchange(python, "h5py_oddities", folder.path);
  const std::string types =
      "; tensors must be float32, float64, int32, bool, or uint16 with the attribute dtype = bfloat16";
  const std::string roots = "; an entry outside of the sections must be an integer, a string or a 1-D array of bytes";
  const std::string links = "/model/x is a soft or external link; all objects must be in the file itself";
  const std::string again = " is a second link to an object; each object must have one name";
  const std::string counted = " is linked 2 times; each object must be linked once";
  const std::string chunks =
      "/model/x stores its values in chunks or compressed; they must be contiguous and uncompressed";
  const std::string elsewhere =
      "/model/x stores its values in other files or data sets; a checkpoint must contain its own values";
  const std::pair<const char*, std::string> cases[] = {
      {"int64", "/model/x is int64" + types},
      {"uint8", "/model/x is uint8" + types},
      {"uint16", "/model/x is uint16" + types},
      {"uint32", "/model/x is uint32" + types},
      {"attribute", "/model/x is uint16" + types},
      {"attributes", "/model/x is uint16" + types},
      {"no_attribute", "/model/x is uint16" + types},
      {"ascii_attribute", "/model/x is uint16" + types},
      {"maybe", "/model/x has values that are neither true nor false"},
      {"float16", "/model/x is float16" + types},
      {"complex", "/model/x is a compound" + types},
      {"string", "/model/x is a string" + types},
      {"null", "/model/x has no shape; a checkpoint holds arrays and single values"},
      {"axes", "/model/x has 9 axes; tensors have at most 8"},
      {"root", "/x has rank 1 and is float32" + roots},
      {"real", "/x has rank 0 and is float64" + roots},
      {"negative", "/step is negative; counters must be 0 or more"},
      {"type", "/model/x is neither a group nor a data set"},
      {"soft", links},
      {"external", links},
      {"deep", "/a/b/c/d/e/f/g/h/i/j/k/l/m/n/o/p/q is 17 groups deep; the maximum is 16"},
      {"cycle", "/model" + counted},
      {"twice", "/model/x" + counted},
      {"elsewhere", elsewhere},
      {"virtual", elsewhere},
      {"chunks", chunks},
      {"compressed", chunks},
      {"unwritten", "/model/x has no values in the file; a checkpoint must contain them"},
      {"endless", "/model/x has an axis of 1099511627776, so it is larger than any file"},
      {"committed", "/model/x shares a part with other objects; it must have its own"},
      {"attribute_table", "/model/x has a table of attributes; its only attribute may be dtype"},
      {"control", "/model/\\x1B[2J is int64" + types},
  };
  const std::size_t handles = test::open_hdf5_handles();
  for (const auto& item : cases) {
    const std::string name = item.first, sentence = item.second;
    const fs::path file = folder.path / (name + ".h5");
    const std::string message = error_of([&] { load_checkpoint(file); });
    INFO(name);
    CHECK(message == "load_checkpoint: " + file.string() + ": " + sentence);
  }
  CHECK(test::open_hdf5_handles() == handles);
}

TEST_CASE("checkpoint Python: heed computes the same logits from PyTorch's weights") {
  const std::string python = python_with("h5py, torch");
  if (python.empty()) return;
  const TemporaryFolder folder;
  exchange(python, "from_pytorch", folder.path);
  const Checkpoint c = load_checkpoint(folder.path / "gpt.h5"), expected = load_checkpoint(folder.path / "logits.h5");
  GPT model =
      small_gpt({.vocabulary = 23, .context = 12, .blocks = {.layers = 2, .attention = {.width = 16, .heads = 2}}});
  const LoadReport report = load_model(c, model);
  CHECK(report.missing.empty());
  CHECK(report.unexpected.empty());
  CHECK(close(model(expected.tensor("data/x")).detach(), expected.tensor("data/logits"), 1e-4, 1e-4));
  CHECK(contains(c.text("config"), "\"width\": 16"));

  const Checkpoint kinds = load_checkpoint(folder.path / "kinds.h5");
  CHECK(same_bits(kinds.tensor("model/half"), Tensor::from<float>({1, -2.5}, {2}).to(DType::bfloat16)));
  CHECK(same_bits(kinds.tensor("model/count"), Tensor::scalar(7, DType::int32)));
  CHECK(same_bits(kinds.tensor("model/mask"), Tensor::from<bool>({1, 0}, {2})));
}

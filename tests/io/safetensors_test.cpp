// safetensors files: those of the safetensors package, read and written; folders with an index; models; refusals.
#include <heed/io/safetensors.hpp>
#include <heed/layers/linear.hpp>
//
#include <cmath>
#include <set>

#include "tests/data/checkpoint_model.hpp"
#include "tests/data/temporary_folder.hpp"
#include "tests/foreign_locale.hpp"
#include "tests/support.hpp"
#include "tests/tools/paths.hpp"
#include "tests/tools/python.hpp"
#include "tests/tools/size_limit.hpp"

using namespace heed;
using test::bytes_of;
using test::contains;
using test::error_of;
using test::same_bits;
using test::TemporaryFolder;
namespace fs = std::filesystem;

namespace {

const fs::path kStored = test::in_source("tests/reference/safetensors");

std::set<std::string> names_of(const TensorsByName& tensors) {
  std::set<std::string> names;
  for (const auto& [name, x] : tensors) names.insert(name);
  return names;
}

// The tensors of written.safetensors (tests/reference/safetensors_files.py).
TensorsByName written_tensors() {
  return {{"b", Tensor::from({1, 3, 2, -4}, {2, 2}).t()},
          {"a", Tensor::from<double>({0.1})},
          {"c", Tensor::from<std::int32_t>({1, -2, 3})},
          {"d", Tensor::from<bool>({1, 0})},
          {"e", Tensor::from({1, -3.140625}).to(DType::bfloat16)},
          {"é \"\n\\\x01\x7f/", Tensor::from({0.25, 0.5})},
          {"scalar", Tensor::scalar(3.25)},
          {"empty", Tensor::zeros({0, 3})},
          {"double", Tensor::from<double>({1.5, -2}, {2, 1})}};
}

}  // namespace

TEST_CASE("safetensors: the package's file with each type") {
  const SafetensorsFile file(kStored / "types.safetensors");
  CHECK(file.metadata() == std::map<std::string, std::string>{{"format", "pt"}});
  CHECK(file.path() == kStored / "types.safetensors");
  CHECK(file.tensor("u16").type == StoredType::u16);
  CHECK(file.tensor("f16").shape == Shape{3});
  CHECK(contains(error_of([&] { file.tensor("none"); }), "types.safetensors has no tensor none"));
  const TensorsByName expected = {{"f64", Tensor::from<double>({1.5, -2.25})},
                                  {"f32", Tensor::from({0, 0.5, 1, 1.5, 2, 2.5}, {2, 3})},
                                  {"f16", Tensor::from({0.5, -1.25, 65504})},
                                  {"bf16", Tensor::from({1, -3.140625}).to(DType::bfloat16)},
                                  {"i64", Tensor::from<std::int32_t>({-5, 2147483647})},
                                  {"i32", Tensor::from<std::int32_t>({-6, 7})},
                                  {"i16", Tensor::from<std::int32_t>({-32768, 7})},
                                  {"i8", Tensor::from<std::int32_t>({-128, 127})},
                                  {"u64", Tensor::from<std::int32_t>({7, 2147483647})},
                                  {"u32", Tensor::from<std::int32_t>({8, 2147483647})},
                                  {"u16", Tensor::from<std::int32_t>({9, 65535})},
                                  {"u8", Tensor::from<std::int32_t>({0, 127, 255})},
                                  {"bool", Tensor::from<bool>({1, 0, 1})},
                                  {"scalar", Tensor::scalar(3.25)},
                                  {"empty", Tensor::zeros({0, 4})},
                                  {"é \"\n\\\x01", Tensor::from<std::int32_t>({1, 2})}};
  const TensorsByName loaded = load_safetensors(kStored / "types.safetensors");
  CHECK(names_of(loaded) == names_of(expected));
  for (const auto& x : expected) {
    INFO(x.first);
    CHECK(same_bits(loaded.at(x.first), x.second));
  }
}

TEST_CASE("safetensors: written files are those of the package, byte for byte, and are restored") {
  const TemporaryFolder folder;
  const fs::path path = folder.path / "x.safetensors";
  save_safetensors(path, written_tensors());
  CHECK(bytes_of(path) == bytes_of(kStored / "written.safetensors"));
  const TensorsByName loaded = load_safetensors(path);
  CHECK(loaded.size() == written_tensors().size());
  for (const auto& [name, x] : written_tensors()) CHECK(same_bits(loaded.at(name), x));
  save_safetensors(path, {}, {.metadata = {}});
  CHECK(bytes_of(path) == std::string("\x08\0\0\0\0\0\0\0{}      ", 16));
  CHECK(load_safetensors(path).empty());
}

TEST_CASE("safetensors: floating tensors in another type") {
  const TemporaryFolder folder;
  const fs::path path = folder.path / "x.safetensors";
  const TensorsByName tensors = {{"w", Tensor::from({0.1, -65504, INFINITY, NAN}, {2, 2})},
                                 {"d", Tensor::from<double>({1.0 / 3})},
                                 {"ids", Tensor::from<std::int32_t>({7})},
                                 {"mask", Tensor::from<bool>({1})}};
  for (const StoredType type : {StoredType::f64, StoredType::f32, StoredType::f16, StoredType::bf16}) {
    const std::string name(name_of(type));
    INFO(name);
    save_safetensors(path, tensors, {.type = type});
    const SafetensorsFile file(path);
    CHECK(file.tensor("w").type == type);
    CHECK(file.tensor("d").type == type);
    CHECK(contains(bytes_of(path), "\"w\":{\"dtype\":\"" + name + "\""));
    CHECK(file.tensor("ids").type == StoredType::i32);
    CHECK(file.tensor("mask").type == StoredType::boolean);
    const TensorsByName loaded = load_safetensors(path);
    CHECK(loaded.at("w").dtype() == dtype_for(type));
    const double tolerance = type == StoredType::f16 ? 5e-4 : type == StoredType::bf16 ? 4e-3 : 1e-7;
    CHECK(test::close(loaded.at("w"), tensors.at("w"), tolerance, 0));
    CHECK(test::close(loaded.at("d"), tensors.at("d"), tolerance, 0));
  }
  CHECK(contains(error_of([&] {
                   save_safetensors(path, {{"w", Tensor::full({2}, 65520)}}, {.type = StoredType::f16});
                 }),
                 "save_safetensors: w cannot be written as F16: "));
  CHECK(load_safetensors(path).size() == 4);  // the previous file
  CHECK(test::files_in(folder.path) == 1);
}

TEST_CASE("safetensors: values at odd addresses are read, and integers that do not fit int32 refused") {
  const TemporaryFolder folder;
  const auto write = [&](const std::string& type, const auto& values) {
    const std::string count = std::to_string(std::size(values)), bytes = std::to_string(sizeof values);
    std::string header =
        "{\"x\":{\"dtype\":\"" + type + "\",\"shape\":[" + count + "],\"data_offsets\":[0," + bytes + "]}}";
    header.resize(header.size() / 8 * 8 + 9, ' ');
    return folder.write("x.safetensors", std::string(1, static_cast<char>(header.size())) + std::string(7, '\0') +
                                             header +
                                             std::string(reinterpret_cast<const char*>(values), sizeof values));
  };
  const std::int64_t integers[] = {1, std::int64_t{1} << 31};
  CHECK(contains(error_of([&] { load_safetensors(write("I64", integers)); }),
                 "load: tensor 'x' is [2] I64 and has the value 2147483648"));
  const float values[] = {1.5f, -2};
  const fs::path path = write("F32", values);
  const Tensor expected = Tensor::from({1.5, -2});
  CHECK(same_bits(load_safetensors(path).at("x"), expected));
  struct Pair {
    Parameter x{Tensor::zeros({2})};
    void members(MemberVisitor& visit) { visit("x", x); }
  } pair;
  load_model(SafetensorsFile(path), pair);
  CHECK(same_bits(pair.x.detach(), expected));
}

TEST_CASE("safetensors: a folder, and the files of an index") {
  const fs::path sharded = kStored / "sharded", index = sharded / "model.safetensors.index.json";
  const TensorsByName expected = {{"embed.weight", Tensor::from({1, 2, 3, 4, 5, 6}, {3, 2})},
                                  {"norm.weight", Tensor::ones({2}, DType::bfloat16)},
                                  {"head.weight", Tensor::from({7, 8, 9, 10}, {2, 2})}};
  for (const fs::path& path : {sharded, index}) {
    const SafetensorsFile file(path);
    CHECK(file.path() == index);
    CHECK(file.metadata() == std::map<std::string, std::string>{{"format", "pt"}});
    const TensorsByName loaded = load_safetensors(path);
    CHECK(names_of(loaded) == names_of(expected));
    for (const auto& [name, x] : expected) CHECK(same_bits(loaded.at(name), x));
  }
  const TemporaryFolder folder;
  fs::copy(sharded, folder.path, fs::copy_options::recursive);
  save_safetensors(folder.path / "model.safetensors", {{"x", Tensor::ones({1})}});
  CHECK(SafetensorsFile(folder.path).path() == folder.path / "model.safetensors");
  const SafetensorsFile copy = [&] { return SafetensorsFile(SafetensorsFile(folder.path)); }();
  CHECK(same_bits(load(copy.tensor("x")), Tensor::ones({1})));  // the mapping belongs to the copy
}

TEST_CASE("safetensors: an index that differs from its files") {
  const TemporaryFolder folder;
  const Tensor x = Tensor::ones({1});
  save_safetensors(folder.path / "a.safetensors", {{"x", x}, {"y", x.clone()}});
  save_safetensors(folder.path / "b.safetensors", {{"z", x}});
  const auto error = [&](const std::string& map) {
    folder.write("model.safetensors.index.json", "{\"weight_map\":" + map + "}");
    return error_of([&] { SafetensorsFile{folder.path}; });
  };
  CHECK(error(R"({"x":"a.safetensors","y":"a.safetensors","z":"b.safetensors"})").empty());
  const std::string rule = "; the index must agree with the files";
  CHECK(contains(error(R"({"x":"a.safetensors"})"), "index.json lacks y, which is in a.safetensors" + rule));
  CHECK(contains(error(R"({"x":"a.safetensors","y":"b.safetensors","z":"b.safetensors"})"),
                 "index.json has another file for y, which is in a.safetensors" + rule));
  CHECK(contains(error(R"({"x":"a.safetensors","y":"a.safetensors","w":"a.safetensors"})"),
                 "index.json has w in a.safetensors, which lacks it" + rule));
  CHECK(contains(error(R"({"x":"c.safetensors"})"),
                 "load_safetensors: there is no file " + (folder.path / "c.safetensors").string()));
  fs::create_directory(folder.path / "d.safetensors");
  CHECK(contains(error(R"({"x":"d.safetensors"})"), "d.safetensors is a folder; it must be a file"));
  CHECK(contains(error(R"({"x":"../a.safetensors"})"), "must be the name of a .safetensors file in the folder"));
}

TEST_CASE("safetensors: files that are missing, pickled or damaged") {
  const TemporaryFolder folder;
  const auto error = [](const fs::path& path) { return error_of([&] { SafetensorsFile{path}; }); };
  CHECK(contains(error(folder.path / "none.safetensors"),
                 "load_safetensors: there is no file " + (folder.path / "none.safetensors").string()));
  CHECK(contains(error(folder.path),
                 folder.path.string() + " has neither model.safetensors nor model.safetensors.index.json"));
  CHECK(contains(error(folder.write("m.safetensors", "")), "m.safetensors has 0 bytes"));
  const fs::path pickled = folder.write("pytorch_model.bin", "PK\3\4" + std::string(100, 'x'));
  CHECK(contains(error(pickled),
                 "pytorch_model.bin is a pickled file of PyTorch, and unpickling can run any code; "
                 "convert it to safetensors (in Python: safetensors.torch.save_file)"));
  CHECK(contains(error(folder.path),
                 " has pytorch_model.bin, a pickled file of PyTorch, but no model.safetensors; "
                 "convert it to safetensors"));
  const std::string bytes = bytes_of(kStored / "types.safetensors");
  for (std::size_t n = 0; n < bytes.size(); n += 83)
    CHECK(!error(folder.write("t.safetensors", bytes.substr(0, n))).empty());
}

TEST_CASE("safetensors: tensors and names that cannot be written") {
  const TemporaryFolder folder;
  const fs::path path = folder.path / "x.safetensors";
  const Tensor x = Tensor::ones({2});
  const auto error = [&](const TensorsByName& tensors, const SafetensorsOptions& options = {}) {
    return error_of([&] { save_safetensors(path, tensors, options); });
  };
  CHECK(error({{"x", Tensor()}}) == "save_safetensors: x is undefined; it must have values");
  CHECK(error({{"x\xff", x}}) ==
        "save_safetensors: x\\xFF is not a valid name; names must be UTF-8 and not __metadata__");
  CHECK(error({{"__metadata__", x}}) ==
        "save_safetensors: __metadata__ is not a valid name; names must be UTF-8 and not __metadata__");
  CHECK(error({{"x", x}}, {.metadata = {{"k", "\xff"}}}) == "save_safetensors: the metadata k = \\xFF is not UTF-8");
  CHECK(error({{"x", x}}, {.metadata = {{"\xff", "v"}}}) == "save_safetensors: the metadata \\xFF = v is not UTF-8");
  for (const StoredType type : {StoredType::q8_0, StoredType::i32, StoredType::boolean})
    CHECK(error({{"x", x}}, {.type = type}) ==
          "save_safetensors: the type is " + std::string(name_of(type)) + "; it must be F64, F32, F16 or BF16");
  const Index huge = Index{1} << 60;
  CHECK(error({{"x", Tensor::ones({1}).expand({huge})},
               {"y", Tensor::ones({1}, DType::float64).expand({huge})},
               {"z", Tensor::ones({1}, DType::float64).expand({huge})}}) ==
        "save_safetensors: z is [1152921504606846976] float64; the file would have more bytes than can be counted");
  CHECK(error_of([&] {
          detail::write_safetensors(path, {{"x", x}, {"x", x.clone()}}, {});
        }) == "save_safetensors: there are two tensors x; names must be unique");
  CHECK(contains(error_of([&] { save_safetensors(folder.path / "none" / "x", {{"x", x}}); }), "there is no folder "));
  CHECK(error_of([&] { export_safetensors(path, Checkpoint{}, "optimizer"); }) ==
        "export_safetensors: the checkpoint has no tensors in the section optimizer");
  CHECK(test::files_in(folder.path) == 0);
  save_safetensors(path, {{"x", x}});
  {
    const test::SizeLimit limit;
    limit.set(1000);
    CHECK(contains(error({{"x", Tensor::zeros({1000})}}), "the previous file is unchanged"));
  }
  CHECK(same_bits(load_safetensors(path).at("x"), x));
}

RELEASE_TEST_CASE("safetensors: a header of more than 100 MB is not written") {
  const TemporaryFolder folder;
  const std::string text(100000000, 'x');
  CHECK(contains(error_of([&] {
                   save_safetensors(folder.path / "x", {}, {.metadata = {{"k", text}}});
                 }),
                 "would have a header of 100000032 bytes; it must have at most 100000000"));
  CHECK(test::files_in(folder.path) == 0);
}

TEST_CASE("safetensors: a tied tensor is written once, under its first name") {
  const TemporaryFolder folder;
  const fs::path path = folder.path / "x.safetensors";
  const Tensor x = Tensor::from({1, 2, 3, 4}, {2, 2});
  // The same storage is not enough: shape, offset and strides count.
  save_safetensors(path, {{"a", x}, {"b", x}, {"c", x.t()}, {"d", x[1]}, {"e", x.view({4})}, {"f", x[1]}});
  const SafetensorsFile file(path);
  CHECK(names_of(load_safetensors(path)) == std::set<std::string>{"a", "c", "d", "e"});
  CHECK(file.metadata() == std::map<std::string, std::string>{{"format", "pt"}, {"b", "a"}, {"f", "d"}});
  save_safetensors(path, {{"a", x}, {"format", x}});
  CHECK(SafetensorsFile(path).metadata().at("format") == "pt");  // the user's entry has priority

  test::Mlp model(3, 4, 4, 1), same(3, 4, 4, 2);
  tie(model.layers[1].weight, model.head);
  tie(same.layers[1].weight, same.head);
  export_safetensors(path, model);
  const SafetensorsFile tied(path);
  CHECK(tied.tensors().contains("layers.1.weight"));
  CHECK(!tied.tensors().contains("head"));
  CHECK(tied.metadata().at("head") == "layers.1.weight");
  load_model(tied, same);
  CHECK(test::same_model(model, same));
}

TEST_CASE("safetensors: models and checkpoints are exported and loaded by one call") {
  const TemporaryFolder folder;
  const fs::path path = folder.path / "x.safetensors";
  test::Mlp model(3, 4, 2, 1), same(3, 4, 2, 2);
  export_safetensors(path, model);
  const LoadReport report = load_model(SafetensorsFile(path), same);
  CHECK(report.missing.empty());
  CHECK(test::same_model(model, same));

  Checkpoint checkpoint;
  store_model(checkpoint, model);
  checkpoint.tensors["optimizer/x"] = Tensor::ones({1});
  checkpoint.late["model/late"] = {.shape = {1}, .values = [] { return Tensor::full({1}, 5); }};
  export_safetensors(path, checkpoint);
  CHECK(load_safetensors(path).size() == 7);
  CHECK(load_safetensors(path).at("late").item() == 5);
  test::Mlp third(3, 4, 2, 3);
  CHECK(contains(error_of([&] { load_model(SafetensorsFile(path), third); }),
                 "x.safetensors has late, which the model "
                 "lacks"));
  CHECK(load_model(SafetensorsFile(path), third, {.allow_unexpected = true}).unexpected ==
        std::vector<std::string>{"late"});
  CHECK(test::same_model(model, third));
  export_safetensors(path, checkpoint, "optimizer");
  CHECK(names_of(load_safetensors(path)) == std::set<std::string>{"x"});
}

TEST_CASE("safetensors: types and names of a model may differ from the file's") {
  const TemporaryFolder folder;
  const fs::path path = folder.path / "x.safetensors";
  Rng rng(1);
  Linear model(4, 2, rng), same(4, 2, rng);
  export_safetensors(path, model, {.type = StoredType::f16});
  load_model(SafetensorsFile(path), same);  // F16 becomes float32
  CHECK(test::close(same.weight, model.weight, 1e-3, 1e-7));
  export_safetensors(path, model, {.type = StoredType::bf16});
  CHECK(contains(error_of([&] { load_model(SafetensorsFile(path), same); }), "they must agree"));
  CHECK(test::close(same.weight, model.weight, 1e-3, 1e-7));  // unchanged
  load_model(SafetensorsFile(path), same, {.convert = true});
  CHECK(same_bits(same.weight.detach(), model.weight.detach().to(DType::bfloat16).to(DType::float32)));
  save_safetensors(path, {{"net.0.weight", model.weight.detach()}, {"net.0.b", model.bias.detach()}});
  load_model(SafetensorsFile(path), same, {.renames = {{"net.0.b", "bias"}, {"net.0.weight", "weight"}}});
  CHECK(same_bits(same.weight.detach(), model.weight.detach()));
  CHECK(same_bits(same.bias.detach(), model.bias.detach()));
}

TEST_CASE("safetensors: the package reads heed's files, and heed the package's") {
  const std::string python = test::python_with("safetensors.numpy");
  if (python.empty()) return;
  const TemporaryFolder folder;
  TensorsByName tensors = written_tensors();
  tensors.erase("e");  // NumPy has no bfloat16
  const fs::path path = folder.path / "x.safetensors", back = folder.path / "y.safetensors";
  save_safetensors(path, tensors);
  const std::string script =
      "import sys\n"
      "from safetensors.numpy import load_file, save_file\n"
      "tensors = load_file(sys.argv[1])\n"
      "for name in 'abcd': print(name, tensors[name].dtype, tensors[name].tolist())\n"
      "save_file(tensors, sys.argv[2], {'format': 'pt'})\n";
  const test::Ran ran = test::run(python + " -c " + test::quoted(script) + " " + test::quoted(path.string()) + " " +
                                  test::quoted(back.string()));
  INFO(ran.output);
  REQUIRE(ran.exit_code == 0);
  for (const char* line :
       {"a float64 [0.1]", "b float32 [[1.0, 2.0], [3.0, -4.0]]", "c int32 [1, -2, 3]", "d bool [True, False]"})
    CHECK(contains(ran.output, line));
  CHECK(bytes_of(back) == bytes_of(path));
}

RELEASE_TEST_CASE("safetensors: files are written and read alike in every locale") {
  test::check_in_every_locale([] {
    const TemporaryFolder folder;
    const fs::path path = folder.path / "x.safetensors";
    save_safetensors(path, {{"x", Tensor::arange(6000).reshape({2, 3000})}});
    return to_string(load_safetensors(path).at("x").shape()) + bytes_of(path);
  });
}

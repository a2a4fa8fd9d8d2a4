// Checkpoints: loading restores saved contents bit for bit; contents that do not fit a model are refused.
#include <atomic>
#include <chrono>
#include <cmath>
#include <fstream>
#include <heed/data/checkpoint.hpp>
#include <heed/data/detail/checkpoint_hdf5.hpp>
#include <limits>
#include <thread>

#include "tests/data/checkpoint_model.hpp"
#include "tests/data/open_handles.hpp"
#include "tests/data/temporary_folder.hpp"
#include "tests/support.hpp"

using namespace heed;
using heed::test::bytes_of, heed::test::Mlp, heed::test::same_bits, heed::test::same_model;
using test::contains;
using test::error_of;
using test::TemporaryFolder;

static Checkpoint every_kind() {
  Checkpoint c;
  const float inf = std::numeric_limits<float>::infinity();
  c.tensors["model/f32"] = Tensor::from<float>({1.5f, -0.0f, inf, -inf, std::nanf("7"), 1e-45f}, {2, 3});
  c.tensors["model/f64"] = Tensor::from<double>({0.1, -1e308, 5e-324}, {3, 1});
  c.tensors["model/bf16"] = Tensor::from<float>({1.0f, -2.5f, 3e38f, 1e-40f}, {4}).to(DType::bfloat16);
  c.tensors["model/i32"] = Tensor::from<std::int32_t>({-2147483647 - 1, 0, 2147483647}, {3});
  c.tensors["model/b8"] = Tensor::from<bool>({1, 0, 0, 1}, {2, 2});
  c.tensors["optimizer/exp_avg/blocks.0.weight"] = Tensor::arange(24, DType::float32).view({2, 3, 4});
  c.counters = {{"step", 0}, {"seed", std::numeric_limits<std::uint64_t>::max()}, {"position", 1234567890123}};
  c.texts = {{"config", R"({"width": 128, "name": "für Elise"})"}, {"empty", ""}, {"long", std::string(200000, 'x')}};
  c.blobs = {{"tokenizer", std::string("\0\1\xff\n\0", 5)}, {"nothing", ""}};
  return c;
}

static void check_same(const Checkpoint& a, const Checkpoint& b) {
  REQUIRE(a.tensors.size() == b.tensors.size());
  for (const auto& item : a.tensors) {
    INFO(item.first);
    REQUIRE(b.tensors.count(item.first) == 1);
    CHECK(same_bits(item.second, b.tensors.at(item.first)));
  }
  CHECK(a.counters == b.counters);
  CHECK(a.texts == b.texts);
  CHECK(a.blobs == b.blobs);
}

TEST_CASE("checkpoint: every dtype, counter, text and blob is restored bit for bit") {
  const TemporaryFolder folder;
  const Checkpoint c = every_kind();
  save_checkpoint(folder.path / "a.h5", c);
  const Checkpoint d = load_checkpoint(folder.path / "a.h5");
  check_same(c, d);
  CHECK(d.source == (folder.path / "a.h5").string());
  CHECK(std::distance(std::filesystem::directory_iterator(folder.path), {}) == 1);  // no temporary file
}

TEST_CASE("checkpoint: empty, rank 0, rank 8 and strided tensors, and no tensors") {
  const TemporaryFolder folder;
  const auto file = folder.path / "a.h5";
  Checkpoint c;
  for (DType t : {DType::float32, DType::float64, DType::bfloat16, DType::int32, DType::bool8}) {
    const std::string name(name_of(t));
    c.tensors["x/scalar_" + name] = Tensor::ones({}, t);
    c.tensors["x/empty_" + name] = Tensor::zeros({0}, t);
    c.tensors["x/flat_" + name] = Tensor::zeros({3, 0, 2}, t);
    c.tensors["x/deep_" + name] = Tensor::ones({1, 2, 1, 2, 1, 2, 1, 1}, t);
    c.tensors["x/turned_" + name] = Tensor::arange(6).to(t).view({2, 3}).t();
    c.tensors["x/sliced_" + name] = Tensor::arange(10).to(t).slice(0, 1, 9, 3);
  }
  save_checkpoint(file, c);
  check_same(c, load_checkpoint(file));
  save_checkpoint(file, Checkpoint());
  check_same(Checkpoint(), load_checkpoint(file));
}

TEST_CASE("checkpoint: many and large tensors") {
  const TemporaryFolder folder;
  Checkpoint c;
  for (int i = 0; i < 400; ++i)
    c.tensors["model/blocks." + std::to_string(i) + ".weight"] = Tensor::full({i % 7, 3}, i);
  c.tensors["model/large"] = Tensor::arange(3'000'000, DType::float32);
  for (int i = 0; i < 20; ++i) c.counters["counter" + std::to_string(i)] = 1;
  save_checkpoint(folder.path / "a.h5", c);
  check_same(c, load_checkpoint(folder.path / "a.h5"));
  // Each group, and the file itself, has all its links in its header: no fractal heap and no B-tree.
  const std::string bytes = bytes_of(folder.path / "a.h5");
  for (const char* signature : {"FRHP", "BTHD"}) CHECK(bytes.find(signature) == std::string::npos);
}

TEST_CASE("checkpoint: the same state gives the same bytes, at any time and for any earlier contents of memory") {
  const TemporaryFolder folder;
  save_checkpoint(folder.path / "a.h5", every_kind());
  const std::string first = bytes_of(folder.path / "a.h5");
  for (int i = 0; i < 5; ++i) {
    {
      // Fills the heap that HDF5 will reuse.
      std::vector<std::unique_ptr<char[]>> dirt;
      for (std::size_t size = 16; size < (std::size_t{4} << 20); size *= 2) {
        dirt.push_back(std::make_unique<char[]>(size));
        std::fill_n(dirt.back().get(), size, static_cast<char>(0x51 + i));
      }
    }
    if (i == 4) std::this_thread::sleep_for(std::chrono::milliseconds(1100));  // HDF5 times have a resolution of 1 s
    save_checkpoint(folder.path / "b.h5", every_kind());
    CHECK(bytes_of(folder.path / "b.h5") == first);
  }
  save_checkpoint(folder.path / "c.h5", load_checkpoint(folder.path / "a.h5"));
  CHECK(bytes_of(folder.path / "c.h5") == first);
}

TEST_CASE("checkpoint: late tensors are requested once, one after another, and give the same bytes") {
  const TemporaryFolder folder;
  Checkpoint whole = every_kind();
  whole.tensors["a/first"] = Tensor::full({40000}, 1.5);
  whole.tensors["z/last"] = Tensor::full({40000}, 2.5);
  save_checkpoint(folder.path / "whole.h5", whole);
  Checkpoint late = whole;
  std::map<std::string, int> calls;
  for (const char* name : {"a/first", "model/bf16", "model/f32", "z/last"}) {
    const Tensor values = late.tensors.extract(name).mapped();
    late.late[name] = {values.shape(), values.dtype(), [&calls, name, values] { return ++calls[name], values; }};
  }
  save_checkpoint(folder.path / "late.h5", late);
  CHECK(bytes_of(folder.path / "late.h5") == bytes_of(folder.path / "whole.h5"));
  CHECK(calls == std::map<std::string, int>{{"a/first", 1}, {"model/bf16", 1}, {"model/f32", 1}, {"z/last", 1}});

  late.late["z/last"].values = [] { return Tensor::zeros({3}); };
  CHECK(error_of([&] { save_checkpoint(folder.path / "late.h5", late); }) ==
        "save_checkpoint: the values of z/last are [3] float32; they must be [40000] float32");
  CHECK(bytes_of(folder.path / "late.h5") == bytes_of(folder.path / "whole.h5"));
  late.tensors["z/last"] = Tensor::zeros({3});
  CHECK(error_of([&] { save_checkpoint(folder.path / "late.h5", late); }) ==
        "save_checkpoint: there are two tensors z/last; names must be unique");
}

TEST_CASE("checkpoint: no HDF5 handle stays open, after errors neither") {
  const TemporaryFolder folder;
  const std::size_t before = test::open_hdf5_handles();
  Checkpoint c = every_kind();
  save_checkpoint(folder.path / "a.h5", c);
  load_checkpoint(folder.path / "a.h5");
  CHECK(test::open_hdf5_handles() == before);
  c.tensors["model/z"] = Tensor();  // detected after part of the file is built in memory
  CHECK(contains(error_of([&] { save_checkpoint(folder.path / "b.h5", c); }), "the tensor model/z is undefined"));
  CHECK(test::open_hdf5_handles() == before);
}

TEST_CASE("checkpoint: names and contents that cannot be saved") {
  const TemporaryFolder folder;
  const auto save = [&](auto&& change) {
    Checkpoint c;
    change(c);
    const std::string error = error_of([&] { save_checkpoint(folder.path / "a.h5", c); });
    // Invalid names and texts are detected earlier, also for tensors without values.
    CHECK(error_of([&] { check_names("save_checkpoint", c); }) == (contains(error, "undefined") ? "" : error));
    return error;
  };
  const Tensor x = Tensor::zeros({1});
  CHECK(save([&](Checkpoint& c) { c.tensors["x"] = x; }) ==
        "save_checkpoint: the tensor x has no section; its name must be section/name");
  CHECK(save([&](Checkpoint& c) { c.tensors["m/x"] = Tensor(); }) ==
        "save_checkpoint: the tensor m/x is undefined; it must have values");
  for (const char* name : {"/x", "m/", "m//x", "m/./x", "../x"}) {
    CHECK(contains(save([&](Checkpoint& c) { c.tensors[name] = x; }),
                   "is not a valid name; its parts must not be empty, . or .."));
  }
  CHECK(save([&](Checkpoint& c) { c.tensors["m/x"] = c.tensors["m/x/y"] = x; }) ==
        "save_checkpoint: m/x is the name of a tensor and of the section of the tensor m/x/y; names must differ");
  CHECK(save([&](Checkpoint& c) { c.texts["model"] = "gpt", c.tensors["model/x"] = x; }) ==
        "save_checkpoint: model is the name of a text and of the section of the tensor model/x; names must differ");
  CHECK(
      save([&](Checkpoint& c) { c.counters["model"] = 1, c.tensors["model/x/y"] = x; }) ==
      "save_checkpoint: model is the name of a counter and of the section of the tensor model/x/y; names must differ");
  CHECK(contains(save([&](Checkpoint& c) { c.blobs["model"] = "", c.tensors["model/x"] = x; }),
                 "a blob and of the section"));
  CHECK(save([&](Checkpoint& c) { c.texts["t"] = std::string("a\0b", 3); }) ==
        "save_checkpoint: the text t has a zero byte; it must be a blob");
  CHECK(save([&](Checkpoint& c) { c.texts["t"] = "a", c.blobs["t"] = "a"; }) ==
        "save_checkpoint: t is the name of a text and of a blob; names must differ");
  CHECK(save([&](Checkpoint& c) { c.texts["t"] = "a", c.counters["t"] = 1; }) ==
        "save_checkpoint: t is the name of a counter and of a text; names must differ");
  CHECK(save([&](Checkpoint& c) { c.counters["m/t"] = 1; }) ==
        "save_checkpoint: m/t is in a section; only tensors may be in sections");
  CHECK(std::filesystem::is_empty(folder.path));
}

TEST_CASE("checkpoint: missing parts are errors that name them") {
  Checkpoint c;
  c.source = "nano.h5";
  CHECK(error_of([&] { c.tensor("model/x"); }) == "checkpoint: nano.h5 has no tensor model/x");
  CHECK(error_of([&] { c.counter("step"); }) == "checkpoint: nano.h5 has no counter step");
  CHECK(error_of([&] { c.text("config"); }) == "checkpoint: nano.h5 has no text config");
  CHECK(error_of([&] { c.blob("tokenizer"); }) == "checkpoint: nano.h5 has no blob tokenizer");
}

TEST_CASE("checkpoint: threads may save and load at the same time") {
  const TemporaryFolder folder;
  std::vector<std::thread> threads;
  std::atomic<int> good{0};
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      const auto file = folder.path / (std::to_string(t) + ".h5");
      for (int i = 0; i < 5; ++i) {
        Checkpoint c;
        c.counters["step"] = static_cast<std::uint64_t>(100 * t + i);
        save_checkpoint(file, c);
        if (load_checkpoint(file).counter("step") == c.counter("step")) good++;
      }
    });
  }
  for (std::thread& t : threads) t.join();
  CHECK(good == 20);
}

TEST_CASE("checkpoint: a model is saved and restored, and a tied parameter is saved once") {
  const TemporaryFolder folder;
  const auto file = folder.path / "model.h5";
  Mlp a(3, 4, 2, 1), b(3, 4, 2, 2);
  tie(a.layers[1].weight, a.head);
  tie(b.layers[1].weight, b.head);
  Checkpoint c;
  store_model(c, a);
  CHECK(c.tensors.size() == 5);
  CHECK(c.tensors.count("model/head") == 0);
  CHECK(c.tensor("model/layers.0.weight").shares_storage(a.layers[0].weight));  // handles, not copies
  save_checkpoint(file, c);
  const auto version = b.layers[0].weight.version();
  const LoadReport report = load_model(load_checkpoint(file), b);
  CHECK(report.missing.empty());
  CHECK(report.unexpected.empty());
  CHECK(same_model(a, b));
  CHECK(same_bits(b.head, a.head));
  CHECK(b.layers[0].weight.version() > version);

  export_weights(folder.path / "weights.h5", a, "{}");
  const Checkpoint w = load_checkpoint(folder.path / "weights.h5");
  CHECK(w.tensors.size() == 5);
  CHECK(w.text("config") == "{}");
  CHECK(error_of([&] { store_model(c, a); }) ==
        "store_model: the checkpoint already has a tensor model/layers.0.weight; names must be unique");
}

TEST_CASE("checkpoint: names, shapes and dtypes that do not fit the model are refused, and the model is unchanged") {
  Mlp a(3, 4, 2, 1), b(3, 4, 2, 2), untouched(3, 4, 2, 2);
  Checkpoint c;
  c.source = "nano.h5";
  store_model(c, a);
  const auto load = [&](auto&& change, const LoadOptions& options = {}) {
    Checkpoint changed = c;
    change(changed.tensors);
    const std::string message = error_of([&] { load_model(changed, b, options); });
    CHECK(same_model(b, untouched));
    return message;
  };
  CHECK(load([](auto& t) { t["model/layers.1.bias"] = Tensor::zeros({5}); }) ==
        "load_model: layers.1.bias is [5] float32 in nano.h5 but [2] float32 in the model; they must agree");
  CHECK(load([](auto& t) { t["model/layers.1.bias"] = Tensor::zeros({2}, DType::float64); }) ==
        "load_model: layers.1.bias is [2] float64 in nano.h5 but [2] float32 in the model; they must agree");
  CHECK(load([](auto& t) { t.erase("model/layers.1.bias"); }) ==
        "load_model: nano.h5 lacks layers.1.bias, which the model needs");
  CHECK(load([](auto& t) { t.erase("model/layers.1.bias"), t.erase("model/layers.0.bias"); }) ==
        "load_model: nano.h5 lacks layers.0.bias, layers.1.bias, which the model needs");
  CHECK(load([](auto& t) { t["model/layers.2.bias"] = Tensor::zeros({1}); }) ==
        "load_model: nano.h5 has layers.2.bias, which the model lacks");
  CHECK(load([](auto&) {}, {.section = "weights"}) == "load_model: nano.h5 has no tensors in the section weights");
  CHECK(load([](auto&) {}, {.renames = {{"transformer", "layers"}}}) ==
        "load_model: cannot rename transformer to layers: no name in nano.h5 is or begins with transformer");
  CHECK(load([](auto&) {}, {.renames = {{"layers.0", "layers.1"}}}) ==
        "load_model: layers.0.bias and layers.1.bias of nano.h5 are both renamed to layers.1.bias; the new names must "
        "be unique");
  CHECK(load([](auto& t) { t["model/steps"] = Tensor::zeros({}, DType::float32); }, {.convert = true}) ==
        "load_model: steps is [] float32 in nano.h5 but [] int32 in the model; they must agree");
}

TEST_CASE("checkpoint: missing, unexpected, renamed and converted tensors on request") {
  Mlp a(3, 4, 2, 1), b(3, 4, 2, 2);
  Checkpoint c;
  store_model(c, a, "weights");
  auto& t = c.tensors;
  t["weights/old.0.weight"] = t["weights/layers.0.weight"].to(DType::float64);
  t["weights/old.0.bias"] = t["weights/layers.0.bias"];
  t["weights/older"] = Tensor::zeros({1});  // begins with «old», but not with «old.»
  for (const char* name : {"weights/layers.0.weight", "weights/layers.0.bias", "weights/head"}) t.erase(name);
  const LoadReport report = load_model(c, b,
                                       {.allow_missing = true,
                                        .allow_unexpected = true,
                                        .convert = true,
                                        .renames = {{"old", "layers"}},
                                        .section = "weights"});
  CHECK(report.missing == std::vector<std::string>{"head"});
  CHECK(report.unexpected == std::vector<std::string>{"older"});
  CHECK(same_bits(a.layers[0].weight, b.layers[0].weight));
  CHECK(same_bits(a.layers[0].bias, b.layers[0].bias));
  CHECK_FALSE(same_bits(a.head, b.head));
}

TEST_CASE("checkpoint: a tied parameter loads under any of its names, and under several that agree") {
  Mlp a(3, 4, 2, 1);
  Checkpoint c;
  c.source = "pytorch.h5";
  store_model(c, a);
  Mlp b(3, 4, 2, 2);
  tie(b.layers[1].weight, b.head);
  CHECK(error_of([&] { load_model(c, b); }) ==
        "load_model: the model ties layers.1.weight and head, but pytorch.h5 has different values for them; they must "
        "be the "
        "same");
  c.tensors["model/head"] = c.tensors["model/layers.1.weight"].clone();
  load_model(c, b);
  CHECK(same_bits(b.head, a.layers[1].weight));
  Mlp d(3, 4, 2, 3);
  tie(d.layers[1].weight, d.head);
  c.tensors.erase("model/layers.1.weight");
  CHECK(load_model(c, d).missing.empty());
  CHECK(same_bits(d.layers[1].weight, a.layers[1].weight));
}

TEST_CASE("checkpoint: the trainable part of a model, for a model with the same base") {
  Mlp model(3, 4, 2, 1), same(3, 4, 2, 1), other(3, 4, 2, 2), whole(3, 4, 2, 3), all_frozen(3, 4, 2, 1);
  for (Mlp* m : {&model, &same, &other}) {
    freeze(*m);
    freeze(m->layers[1], false);
  }
  model.layers[1].weight.fill_(5);
  Checkpoint c;
  c.source = "part.h5";
  store_trainable(c, model);
  CHECK(c.tensors.size() == 2);
  CHECK(c.texts.at("base_hash").size() == 16);
  load_trainable(c, same);
  CHECK(same_model(model, same));
  const std::string refused = error_of([&] { load_trainable(c, other); });
  CHECK(contains(refused, "load_trainable: the hash of the base of part.h5 is " + c.texts.at("base_hash") +
                              " but that of this model is "));
  CHECK(contains(refused, "; load the base that the checkpoint was trained on, with the same dtype"));
  same.steps.fill_(1);  // a buffer is part of the base
  CHECK(contains(error_of([&] { load_trainable(c, same); }), "load_trainable: the hash of the base"));
  freeze(whole, true);
  whole.head.requires_grad_(true);
  CHECK(contains(error_of([&] { load_trainable(c, whole); }), "load_trainable: the hash of the base"));
  CHECK(contains(error_of([&] { load_model(c, whole); }),
                 "load_model: part.h5 has only the trained part of a model; load_trainable() loads it into a model "
                 "with the same base and adapters"));
  Checkpoint complete;
  complete.source = "whole.h5";
  store_model(complete, model);
  CHECK(
      contains(error_of([&] { load_trainable(complete, model); }),
               "load_trainable: whole.h5 has a whole model, not only the trained part of one; load_model() loads it"));
  freeze(all_frozen);
  CHECK(contains(error_of([&] { store_trainable(c, all_frozen); }),
                 "store_trainable: all parameters of the model are frozen; at least one must be trained"));
}

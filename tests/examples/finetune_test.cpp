// Runs finetune on a tiny model of the class of Llama (tests/reference/pretrained).
#include <fstream>
#include <heed/io/pretrained.hpp>
#include <heed/io/safetensors.hpp>
#include <heed/layers/lora.hpp>

#include "tests/examples/programs.hpp"
#include "tests/tools/paths.hpp"

using namespace heed;
using test::bytes_of;
using test::contains;
using test::json_lines;
using test::Ran;

namespace {

// A run in a temporary folder, with data whose answer follows from the question.
struct Tuning {
  test::TemporaryFolder folder;
  std::string model = test::in_source("tests/reference/pretrained/llama");

  Tuning() {
    std::ofstream lines(folder.path / "data.jsonl");
    for (int i = 0; i < 120; ++i)
      lines << R"({"prompt": "w)" << i % 30 << R"(", "completion": "w)" << (i % 30 + 1) << "\"}\n";
  }
  std::string file(const std::string& name) const { return (folder.path / name).string(); }
  Ran run(const std::string& flags) const {
    return test::run("exec env -C " + test::quoted(folder.path.string()) + " " + test::program("finetune") + " " +
                     test::starting(flags));
  }
  Ran train(const std::string& flags) const {
    return run("--model " + model + " --data data.jsonl --context 16 --batch 2 --lr 0.02 --rank 4 " + flags);
  }
};

}  // namespace

TEST_CASE("finetune: an adapter learns the answers, and is written for PEFT") {
  const Tuning t;
  const Ran ran = t.train("--epochs 12 --log log --plot losses.svg");
  INFO(ran.output);
  REQUIRE(ran.exit_code == 0);
  CHECK(contains(ran.output, "120 examples"));
  CHECK(contains(ran.output, "adapter: adapter"));
  const std::vector<nlohmann::json> log = json_lines(t.file("log"));
  CHECK(log.back().at("val_loss").get<double>() < 0.7 * log.front().at("loss").get<double>());
  CHECK(contains(bytes_of(t.file("losses.svg")), "<svg"));
  Pretrained p = load_pretrained(t.model);
  CHECK(load_peft(t.file("adapter"), p.lm.model, peft_names(p)).rank == 4);
  // The checkpoint has no weights of the base.
  const Checkpoint c = load_checkpoint(t.file("finetune.h5"));
  CHECK(c.tensors.contains("model/blocks.0.attention.qkv.lora.a"));
  CHECK_FALSE(c.tensors.contains("model/blocks.0.attention.qkv.weight"));
  const Ran made = test::run(test::program("generate") + " --checkpoint " + t.file("finetune.h5"));
  test::check_refused(made, 1,
                      "finetune.h5 has only the trained part of a model, such as an adapter, and not its base, " +
                          t.model + "; load the base, and add the adapter that finetune wrote: convert --model " +
                          t.model + " --adapter FOLDER --merge --out FILE");
}

TEST_CASE("finetune: a run that was stopped continues to the same bits") {
  const Tuning whole, parts;
  REQUIRE(whole.train("--steps 6 --schedule constant --warmup 0 --lora-dropout 0.1").exit_code == 0);
  REQUIRE(parts.train("--steps 3 --schedule constant --warmup 0 --lora-dropout 0.1").exit_code == 0);
  const Ran resumed = parts.run("--steps 6 --resume");  // model and data are those of the checkpoint
  INFO(resumed.output);
  REQUIRE(resumed.exit_code == 0);
  for (const char* file : {"adapter/adapter_model.safetensors", "adapter/adapter_config.json"})
    CHECK(bytes_of(whole.file(file)) == bytes_of(parts.file(file)));
}

TEST_CASE("finetune: model and data are required, except for a run that continues with those of its checkpoint") {
  const Tuning t;
  test::check_refused(t.run("--data data.jsonl"), 2, "--model is required");
  test::check_refused(t.run("--model " + t.model), 2, "--data is required");
  REQUIRE(t.train("--steps 1").exit_code == 0);
  std::filesystem::rename(t.file("data.jsonl"), t.file("moved.jsonl"));
  test::check_refused(t.run("--steps 2 --resume"), 1,
                      "data.jsonl does not exist (finetune.h5 was trained on it; give --data to say where it is now)");
  CHECK(t.run("--steps 2 --resume --data moved.jsonl").exit_code == 0);
}

TEST_CASE("finetune: all weights, with frozen blocks, recomputation and bf16, are saved as a folder") {
  const Tuning t;
  const Ran ran = t.train("--full --freeze 1 --recompute --dtype bf16 --steps 2 --layer-decay 0.9 --out tuned");
  INFO(ran.output);
  REQUIRE(ran.exit_code == 0);
  Pretrained before = load_pretrained(t.model), after = load_pretrained(t.file("tuned"));
  const auto a = named_parameters(before.lm.model), b = named_parameters(after.lm.model);
  for (std::size_t i = 0; i < a.size(); ++i) {
    CAPTURE(a[i].name);
    const bool frozen = a[i].name.starts_with("tokens") || a[i].name.starts_with("blocks.0.");
    CHECK(test::same_bits(*a[i].parameter, *b[i].parameter) == frozen);
  }
  CHECK(load_pretrained(t.file("finetune.h5")).family == "llama");  // the checkpoint is a model
}

TEST_CASE("finetune: bad data and another base are refused") {
  const Tuning t;
  std::ofstream(t.file("bad.jsonl")) << "{\"text\": \"w1 w2\"}\n{\"prompt\": 3}\n";
  Ran ran = t.run("--model " + t.model + " --data bad.jsonl");
  INFO(ran.output);
  CHECK(ran.exit_code == 1);
  CHECK(contains(ran.output, "line 2 of bad.jsonl"));
  std::ofstream(t.file("chat.jsonl")) << R"({"messages": [{"role": "user", "content": "w1"}]})" << '\n';
  ran = t.run("--model " + t.model + " --data chat.jsonl");
  CHECK(ran.exit_code == 1);
  CHECK(contains(ran.output, "template"));
  REQUIRE(t.train("--steps 2").exit_code == 0);
  // The base changes.
  std::filesystem::copy(t.model, t.file("base"), std::filesystem::copy_options::recursive);
  Pretrained p = load_pretrained(t.model);
  named_parameters(p.lm.model).front().parameter->fill_(0.5);
  std::filesystem::remove(t.file("base") + "/reference.safetensors");  // no file of a model
  save_pretrained(t.file("base"), p);
  ran = t.run("--model base --data data.jsonl --steps 4 --resume");
  INFO(ran.output);
  CHECK(ran.exit_code != 0);
  CHECK(contains(ran.output, "base"));
}

TEST_CASE("finetune: the adapters of GPT-2 are those of its modules, and others are refused at the start") {
  Tuning t;
  t.model = test::in_source("tests/reference/pretrained/gpt2");
  Ran ran = t.train("--steps 1");
  INFO(ran.output);
  REQUIRE(ran.exit_code == 0);
  Pretrained p = load_pretrained(t.model);
  load_peft(t.file("adapter"), p.lm.model, peft_names(p));
  CHECK(p.lm.model.transformer.blocks[0].attention.qkv->lora->columns.size() == 1);
  ran = t.train("--steps 1 --targets q --checkpoint other.h5");
  CHECK(ran.exit_code == 1);
  CHECK(contains(ran.output, "has no module for the map blocks.0.attention.q"));
  CHECK_FALSE(std::filesystem::exists(t.file("other.h5")));
}

TEST_CASE("finetune: an adapter learns on a quantized base, which a resumed run must have too") {
  Tuning t;
  Pretrained wide = load_pretrained(t.model);  // with rows of whole blocks
  wide.config.options.blocks.attention.width = 64, wide.config.options.blocks.attention.key_size = 16;
  Rng rng(1);
  wide.lm.model = GPT(wide.config.options, rng, wide.config.factory());
  t.model = t.file("wide");
  save_pretrained(t.model, wide);
  const Ran ran = t.train("--epochs 12 --log log --base-dtype q8_0");
  INFO(ran.output);
  REQUIRE(ran.exit_code == 0);
  CHECK(contains(ran.output, "weights were rounded to q8_0, with a relative error of 0.00"));
  REQUIRE(t.train("--epochs 12 --log log32 --checkpoint f32.h5 --out f32").exit_code == 0);
  const auto losses = [&](const char* name) {
    const std::vector<nlohmann::json> log = json_lines(t.file(name));
    return std::pair(log.front().at("loss").get<double>(), log.back().at("val_loss").get<double>());
  };
  const auto rounded = losses("log"), exact = losses("log32");
  CHECK(rounded.second < rounded.first - 0.5);
  CHECK(rounded.second == doctest::Approx(exact.second).epsilon(0.02));
  const Ran other = t.run("--model " + t.model + " --data data.jsonl --resume --base-dtype f32");
  CHECK(other.exit_code != 0);
  CHECK(contains(other.output, "base-dtype"));
  const Ran full = t.train("--full --base-dtype q8_0");
  CHECK(full.exit_code == 1);
  CHECK(contains(full.output, "--base-dtype is q8_0, but --full trains all weights"));
}

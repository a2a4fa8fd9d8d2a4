// The list of a program's settings: flags, JSON, checks of stored values, --resume, --init, and names in messages.
#include "examples/support/settings.hpp"

#include "tests/support.hpp"

using namespace heed::examples;
using heed::Error;
using heed::Index;

namespace {

struct ProgramSettings {
  Index layers = 2, limit = -1;
  std::string tokenizer = "char", mode = "slow";
  std::vector<std::string> data = {};
  double lr = 1e-3, cap = 0;
  bool deep = false;

  void fields(SettingFields& f) {
    f.order({"lr", "layers"});
    f("layers", layers, Kind::model, "Blocks", whole(1));
    f("deep", deep, Kind::model, "A switch");
    f("tokenizer", tokenizer, Kind::model, "A tokenizer", tokenizer_name());
    f("data", data, Kind::data, "Texts", text_name("PATH..."));
    f("mode", mode, Kind::start, "A word", one_of({"slow", "fast"}));
    f("limit", limit, Kind::training, "A limit; without the flag, none", whole(0));
    f("cap", cap, Kind::model, "Newer than some checkpoints", number(0)).stored = cap > 0;
    f("lr", lr, Kind::run, "A rate", number(0));
  }
  std::string json() { return SettingFields(*this).json(); }
};

// Flags that were parsed.
struct Flags {
  CommandLine line{"about", "program"};
  ProgramSettings given = {};

  explicit Flags(std::vector<std::string> words) {
    SettingFields(given).add_flags(line);
    words.insert(words.begin(), "program");
    std::vector<char*> argv;
    for (std::string& word : words) argv.push_back(word.data());
    REQUIRE_FALSE(line.parse(static_cast<int>(argv.size()), argv.data()));
  }
  std::string resumed(const std::string& stored, bool other_data = false) {
    ProgramSettings s;
    SettingFields(s).read(StoredSettings(stored, "a.h5"));
    changed = SettingFields(s).resume(line, SettingFields(given), other_data);
    return s.json();
  }
  std::vector<ChangedSetting> changed = {};
};

std::string refused(const std::vector<std::string>& words, const std::string& stored, bool other_data = false) {
  try {
    return Flags(words).resumed(stored, other_data);
  } catch (const UsageError& e) {
    return e.what();
  }
}

const std::string kDefaults =
    R"({"lr":0.001,"layers":2,"deep":false,"tokenizer":"char","data":[],"mode":"slow","limit":-1})";

}  // namespace

TEST_CASE("settings: flags fill them, and JSON has the older names first and no newer ones with their defaults") {
  CHECK(ProgramSettings().json() == kDefaults);
  Flags f({"--layers", "3", "--deep", "--data", "a", "b\xff", "--cap", "30", "--lr", "0.5"});
  ProgramSettings s;
  SettingFields(s).take(f.line, SettingFields(f.given));
  CHECK(s.json() == R"({"lr":0.5,"layers":3,"deep":true,"tokenizer":"char","data":["a",{"hex":"62ff"}],)"
                    R"("mode":"slow","limit":-1,"cap":30.0})");
  ProgramSettings read;
  SettingFields(read).read(StoredSettings(s.json(), "a.h5"));
  CHECK(read.json() == s.json());
  CHECK(read.data == std::vector<std::string>{"a", "b\xff"});
  ProgramSettings of_model;
  SettingFields(of_model).read(StoredSettings(s.json(), "a.h5"), Kind::model);
  CHECK(of_model.layers == 3);
  CHECK(of_model.lr == 1e-3);
}

TEST_CASE("settings: stored values of another type, or that the flag refuses, are errors, but defaults are not") {
  const auto error = [](const std::string& stored) {
    ProgramSettings s;
    return heed::test::error_of([&] { SettingFields(s).read(StoredSettings(stored, "a.h5")); });
  };
  CHECK(error(kDefaults) == "");  // --limit -1 would be refused
  CHECK(error(R"({"lr": 1, "other": 2})") == "");
  CHECK(error("[1]") == "a.h5: the settings are damaged; they must be a JSON object");
  CHECK(error(R"({"limit": -2})") ==
        "a.h5: the setting limit is wrong: it is '-2'; it must be a whole number, 0 or more");
  CHECK(error(R"({"layers": 1.5})") == "a.h5: the setting layers is wrong: it is 1.5, which has the wrong type");
  CHECK(error(R"({"mode": 1})") == "a.h5: the setting mode is wrong: it is 1, which has the wrong type");
  CHECK(error(R"({"mode": "quick"})") == "a.h5: the setting mode is wrong: it is 'quick'; it must be slow or fast");
  CHECK(error(R"({"data": [1]})") == "a.h5: the setting data is wrong: it is a list, which has the wrong type");
}

TEST_CASE("settings: a resumed run changes what its kind permits") {
  Flags f({"--lr", "0.5", "--limit", "3", "--layers", "2"});
  CHECK(heed::test::contains(f.resumed(kDefaults), R"("lr":0.5,"layers":2,)"));
  REQUIRE(f.changed.size() == 2);  // --layers is as before
  CHECK(f.changed[0].name == "limit");
  CHECK(f.changed[0].before == "-1");
  CHECK(f.changed[0].now == "3");
  CHECK(f.changed[1].kind == Kind::run);
  CHECK(refused({"--layers", "3"}, kDefaults) ==
        "--layers is 3 but the checkpoint was made with 2; leave it out, or start a new training with --overwrite or "
        "another --checkpoint");
  CHECK(refused({"--mode", "fast"}, kDefaults) ==
        "--mode is \"fast\" but the checkpoint was made with \"slow\"; leave it out, or start a new training from its "
        "weights with --init");
  CHECK(refused({"--data", "a"}, kDefaults) ==
        "--data is [\"a\"] but the checkpoint was made with []; leave it out, or start a new training from its "
        "weights with --init, or allow other data with --other-data");
  CHECK(heed::test::contains(refused({"--data", "a"}, kDefaults, true), R"("data":["a"])"));
  // Files may have been moved, but a file is not a built-in tokenizer.
  const std::string moved =
      refused({"--data", "b", "-", "--tokenizer", "c.model"}, R"({"data": ["a"], "tokenizer": "b.model"})");
  CHECK(heed::test::contains(moved, R"("tokenizer":"c.model","data":["b","-"])"));
  CHECK(heed::test::contains(refused({"--tokenizer", "c.model"}, kDefaults), "was made with \"char\""));
}

TEST_CASE("settings: flags must not contradict the model that a new run starts from") {
  const auto started = [](const std::vector<std::string>& words) {
    Flags f(words);
    ProgramSettings s;
    s.layers = 5, s.tokenizer = "a.model";
    try {
      SettingFields(s).init(f.line, SettingFields(f.given), "a.h5");
    } catch (const UsageError& e) {
      return std::string(e.what());
    }
    return s.json();
  };
  CHECK(started({"--layers", "4"}) == "--layers is 4 but the model of a.h5 has 5; leave it out");
  CHECK(started({"--layers", "5", "--mode", "fast", "--tokenizer", "byte"}) ==
        R"({"lr":0.001,"layers":5,"deep":false,"tokenizer":"byte","data":[],"mode":"fast","limit":-1})");
}

namespace {

struct Net {  // options of a model, as a library has them
  Index layers = 4, hidden_size = 0;
  double share = 0.1, soft_cap = 0;
  bool deep = false;
  heed::NormKind norm = heed::NormKind::layer;

  void fields(heed::OptionFields& f) {
    f({"layers", "Blocks"}, layers, 1), f("hidden_size", hidden_size), f({"share", "A share"}, share);
    f.optional({"deep", "More blocks"}, deep);
    f({"norm", "The norm"}, norm, heed::norm_kinds());
    f.optional({"soft_cap", "A cap"}, soft_cap, heed::OptionField::positive);
  }
};

struct NetSettings {
  Net net;
  void fields(SettingFields& f) {
    f.options(net, {{"share", {.defaults = "by preset", .kind = Kind::training}}, {"deep", {.always_stored = true}}});
  }
};

}  // namespace

TEST_CASE("settings: each described field of a model's options is a flag, and is stored in checkpoints") {
  const std::string stored = R"({"layers":4,"share":0.1,"deep":false,"norm":"layer"})";
  NetSettings given, s;
  CHECK(SettingFields(s).json() == stored);
  const auto error = [&](const std::vector<std::string>& words) {
    CommandLine line("about", "program");
    given = s = {};
    SettingFields(given).add_flags(line);
    std::vector<std::string> all = {"program"};
    all.insert(all.end(), words.begin(), words.end());
    std::vector<char*> argv;
    for (std::string& word : all) argv.push_back(word.data());
    if (line.parse(static_cast<int>(argv.size()), argv.data())) return std::string("refused");
    SettingFields(s).read(StoredSettings(stored, "a.h5"));
    try {
      SettingFields(s).resume(line, SettingFields(given), false);
    } catch (const UsageError& e) {
      return std::string(e.what());
    }
    return std::string();
  };
  CHECK(error({"--share", ".25", "--layers", "04", "--norm", "layer"}) == "");
  CHECK(s.net.share == 0.25);
  CHECK(s.net.layers == 4);
  CHECK(heed::test::contains(error({"--norm", "rms"}), "--norm is \"rms\" but the checkpoint was made with \"layer\""));
  CHECK(heed::test::contains(error({"--soft-cap", "3e1"}), "--soft-cap is 30.0 but the checkpoint was made with 0.0"));
  CHECK(given.net.soft_cap == 30);
  CHECK(SettingFields(given).json() == R"({"layers":4,"share":0.1,"deep":false,"norm":"layer","soft-cap":30.0})");
  for (const std::vector<std::string>& wrong : {std::vector<std::string>{"--layers", "0"},
                                                {"--layers", "x"},
                                                {"--share", "1"},
                                                {"--soft-cap", "0"},
                                                {"--soft-cap", "0e9"},
                                                {"--soft-cap", "inf"},
                                                {"--deep", "yes"},
                                                {"--norm", "l2"},
                                                {"--hidden-size", "3"}})
    CHECK(error(wrong) == "refused");
}

TEST_CASE("settings: a message names a flag that was given, a checkpoint's file, or a default") {
  const Flags f({"--layers", "1"});
  const SettingOrigins new_run = f.line,
                       resumed(f.line, "lm.h5", StoredSettings(R"({"layers": 9, "mode": "slow"})", "lm.h5").names());
  CHECK(new_run.describe("--layers", "1") == "--layers is 1");
  CHECK(new_run.describe("--mode", "slow") == "mode is slow (the default)");
  CHECK(resumed.describe("--layers", "1") == "--layers is 1");
  CHECK(resumed.describe("--mode", "slow") == "mode is slow (stored in lm.h5)");
  CHECK(resumed.describe("--lr", "0.1") == "lr is 0.1 (the default)");
}

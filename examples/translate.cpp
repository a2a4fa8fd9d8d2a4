// Trains a translator on pairs of sentences and translates. Writes a checkpoint, a log, a plot, translations and
// pictures of the attention.
//
//   translate                                                       the built-in language: dates into ISO 8601
//   translate --source train.de --target train.en --val-source val.de --val-target val.en
//   translate --model conv                                          convolutions instead of recurrence; also bytenet
//   mpirun -n 4 translate --shards 4                                four processes, each with a part of every step
//   translate --checkpoint translate.h5 --resume                    continues a stopped run, to the same bits
//   translate --checkpoint translate.h5 --translate FILE --beam 5   translates each line of FILE
//   translate --checkpoint translate.h5 --text "ein Hund schläft ."
//   translate --checkpoint translate.h5 --alignments attention.svg --text "see you on the third of May, 2021"
#include <cmath>
#include <heed/autograd/matmul.hpp>
#include <heed/heed.hpp>
#include <heed/plot/plot.hpp>
#include <iostream>

#include "examples/support/program.hpp"
#include "examples/support/program_ranks.hpp"
#include "examples/support/run_report.hpp"
#include "examples/support/token_labels.hpp"
#include "examples/support/translation_settings.hpp"

namespace {

using namespace heed;
using namespace heed::examples;
using Settings = TranslationSettings;

struct Flags : RunFlags {
  Flags() : RunFlags{"translate.h5"} {}

  std::string best, translate, alignments, text;
  bool unknown = false;
  Index beam = 5, patience = 0;
  double length_penalty = 1;
};

TranslateOptions search_of(const Flags& f) { return {.beam = f.beam, .alpha = f.length_penalty, .unknown = f.unknown}; }

// Whether to translate with an existing model instead of training one. Throws UsageError for flags that would have no
// effect.
bool translates(const CommandLine& line) {
  const std::vector<std::string> used = {"--checkpoint",     "--threads", "--longest",   "--beam",
                                         "--length-penalty", "--unknown", "--line-ends", "--invalid-utf8"};
  std::string first;
  for (const char* what : {"--translate", "--text", "--alignments"})
    if (first.empty() && line.given(what)) first = what;
  if (first.empty()) return false;
  for (const std::string& flag : line.given()) {
    const bool another = flag == "--text" || flag == "--alignments";  // these two may be combined
    if (first == "--translate" && another)
      throw UsageError("--translate and " + flag + " cannot be combined; give one of them");
    if (flag != first && !another && std::ranges::find(used, flag) == used.end())
      throw UsageError(flag + " is for training, but " + first + " uses a trained model; leave one of them out");
  }
  return true;
}

struct Data {
  std::vector<TextPair> training, validation;
  Tokenizer source, target;
  std::string description;
};

constexpr Index kDates = 60000, kHeldOutDates = 1000;

DateSentences held_out_dates() { return DateSentences({.held_out = true}); }

void learn_tokenizers(Data& d, const Settings& s) {
  const UnicodeForm unicode = unicode_form_of(s.text).value_or(UnicodeForm::nfc);
  const ReadTextOptions reading = reading_options(s.text, nullptr);
  if (s.vocabulary > 0) {
    const SentencePieceOptions pieces{.vocabulary = s.vocabulary, .word_begins = true, .unicode = unicode};
    d.source = d.target = SentencePieceTokenizer::train({s.source, s.target}, pieces, reading);
  } else {
    const WordOptions words{.min_frequency = s.min_freq, .unicode = unicode};
    d.source = WordTokenizer::train({s.source}, words, reading);
    d.target = WordTokenizer::train({s.target}, words, reading);
  }
}

Data load_data(const Settings& s, const Checkpoint* old) {
  Data d{{}, {}, ByteTokenizer(), ByteTokenizer(), {}};
  if (s.built_in()) {
    d.training = DateSentences().pairs(s.seed, kDates);
    d.validation = held_out_dates().pairs(s.seed, kHeldOutDates);
    d.description = "dates in sentences: " + std::to_string(kDates) + " for training, " +
                    std::to_string(kHeldOutDates) + " of other days for validation";
  } else {
    TextReport report;
    const ReadTextOptions reading = reading_options(s.text, &report);
    d.training = read_text_pairs(s.source, s.target, reading);
    d.validation = read_text_pairs(s.val_source, s.val_target, reading);
    if (!report.text().empty()) std::fprintf(stderr, "%s\n", printable(report.text()).c_str());
    d.description = s.source + " and " + s.target + ": " + std::to_string(d.training.size()) + " pairs for training, " +
                    std::to_string(d.validation.size()) + " for validation";
  }
  if (old != nullptr) {
    d.source = Tokenizer::from_json(old->text("source_tokenizer"));
    d.target = Tokenizer::from_json(old->text("target_tokenizer"));
  } else if (s.built_in()) {
    d.source = d.target = CharTokenizer(DateSentences::characters());
  } else {
    learn_tokenizers(d, s);
  }
  return d;
}

// Prints the share of the attention that each field of a held-out date (year, month, day) has on its own words in the
// source. Needs a model with attention weights.
void print_alignments(const Translator& t, std::uint64_t seed) {
  constexpr Index kDatesToSee = 200;
  double shares[3] = {};
  for (Index i = 0; i < kDatesToSee; ++i) {
    const DateSentence date = held_out_dates().sentence(seed, static_cast<std::uint64_t>(i));
    const Tensor weights = align(t, date.source, date.target).weights;  // one token per character
    const auto share = [&](const DateSentence::Field& field, Index begin, Index end) {
      return sum(weights.slice(0, begin, end).slice(1, field.begin, field.end)).item() /
             static_cast<double>((end - begin) * kDatesToSee);
    };
    shares[0] += share(date.year, 0, 4), shares[1] += share(date.month, 5, 7), shares[2] += share(date.day, 8, 10);
  }
  std::fprintf(stderr, "share of attention on the matching field: year %.1f%%, month %.1f%%, day %.1f%%\n",
               100 * shares[0], 100 * shares[1], 100 * shares[2]);
}

// Prints the quality of translations of the validation pairs: BLEU and chrF, or for dates the share of exact ones.
void print_quality(const Translator& t, const Data& d, const Settings& s, const Flags& f) {
  std::vector<std::string> sources, references;
  for (const TextPair& p : d.validation)
    sources.push_back(p.source), references.push_back(normalized(p.target, t.target.unicode()));
  const std::vector<std::string> made = translate(t, sources, search_of(f));
  if (s.built_in()) {
    Index same = 0;
    for (std::size_t i = 0; i < made.size(); ++i) same += made[i] == references[i] ? 1 : 0;
    std::fprintf(stderr, "exact: %.2f%% of %zu dates\n", 100.0 * static_cast<double>(same) / kHeldOutDates,
                 made.size());
    if (!s.model.ends_with("-none") && s.model != "bytenet") print_alignments(t, s.seed);
  } else {
    const Bleu bleu = corpus_bleu(made, {references}, {.tokens = BleuTokens::none});
    const Chrf chrf = corpus_chrf(made, {references});
    std::fprintf(stderr, "%s\n  %s\n%s\n  %s\n", bleu.text().c_str(), bleu.signature().c_str(), chrf.text().c_str(),
                 chrf.signature().c_str());
  }
  for (std::size_t i = 0; i < std::min<std::size_t>(3, made.size()); ++i)
    std::printf("%s\n  %s\n", printable(sources[i]).c_str(), printable(made[i]).c_str());
}

// The last step of a run. If a run resumes with other batches, its epochs end after other steps.
Index last_step(const Settings& s, const SampleBatches& batches, const Checkpoint* old) {
  const Index epoch = (batches.size() + s.shards - 1) / s.shards;  // in steps
  if (old == nullptr || s.epochs == 0 || old->tensors.count("history/batches") == 0) return s.last_step(epoch);
  const std::vector<BatchesRead> read = batches_read(*old);
  const Index done = static_cast<Index>(old->counter("step")), shards = s.shards;
  if (read.size() == 1 && read[0].batching == batches.batching() &&
      read[0].count == static_cast<std::uint64_t>(done * shards))
    return s.last_step(epoch);
  const auto left =
      static_cast<Index>(batches.continued(read).batches_until(s.seed, static_cast<std::uint64_t>(s.epochs)));
  const Index end = done + (left + shards - 1) / shards;
  return s.steps < 0 ? end : std::min(s.steps, end);
}

void print_unknown(const char* of, const TextPairs& pairs) {
  const auto print_side = [&](const char* side, const TokenCounts& counts) {
    if (!counts.text().empty()) std::fprintf(stderr, "%s, %s: %s\n", of, side, counts.text().c_str());
  };
  print_side("source", pairs.source_counts()), print_side("target", pairs.target_counts());
}

template <class M>
int train_model(M& model, Translator& t, const Settings& s, const Flags& f, const Data& d, RunOptions options,
                const std::string& resume) {
  TextPairOptions sides{.longest = s.longest, .skip = true, .source_end = true};
  const auto pairs_of = [&](const std::vector<TextPair>& pairs, const std::string& source, const std::string& target) {
    sides.files = s.built_in() ? "" : source + " and " + target;
    return TextPairs(pairs, d.source, d.target, sides);
  };
  const TextPairs training = pairs_of(d.training, s.source, s.target),
                  held_out = pairs_of(d.validation, s.val_source, s.val_target);
  print_unknown("training", training), print_unknown("validation", held_out);
  const SampleBatches batches(training, {.tokens = s.batch_tokens, .padding = TextPairs::padding()});
  const SampleEvaluation validation(held_out, {.tokens = s.batch_tokens, .padding = TextPairs::padding()});
  const Index epoch = (batches.size() + s.shards - 1) / s.shards;  // in steps
  const Checkpoint* resumed = options.checkpoint.init.empty() ? options.checkpoint.loaded.get() : nullptr;
  std::fprintf(stderr,
               "%s (%lld left out)\n%s: %.2fM parameters, vocabularies of %lld and %lld, %lld steps per epoch; %s, %d "
               "threads, seed %llu; %s\n",
               printable(d.description).c_str(), static_cast<long long>(training.skipped() + held_out.skipped()),
               s.model.c_str(), static_cast<double>(parameter_count(model)) / 1e6,
               static_cast<long long>(training.source_vocabulary()),
               static_cast<long long>(training.target_vocabulary()), static_cast<long long>(epoch), arch(), threads(),
               static_cast<unsigned long long>(s.seed), resumed ? "resuming" : "new training");
  options.steps = last_step(s, batches, resumed);
  options.seconds = 60 * s.minutes;
  Adam adam(named_parameters(model), {.lr = s.lr, .betas = {0.9, s.beta2}, .eps = 1e-9});
  const Index steps = std::max<Index>(1, options.steps);
  const Index warmup = s.needs_last_step() ? std::min(s.warmup, steps) : s.warmup;
  Schedule schedule(s.schedule, {.lr = s.lr, .warmup = warmup, .steps = steps});
  LastWeights last(named_parameters(model), s.average_last);
  if (s.average_last > 1) options.last_weights = &last;
  options.keep_every = s.average_every > 0 ? s.average_every : s.eval_every;

  RunProfile profile(f.profile);
  options.output.profile = profile.get();
  RunResult result = run(model, adam, schedule, batches, validation, options);
  result.loss_unit = "nats per token";  // also if no step was left
  profile.report();
  if (!f.plot.empty() && result.steps > 0) plot_losses(f.plot, result);
  if (result.interrupted) {
    print_stopped(result, options.steps, resume);
    return 130;
  }
  if (!is_first(options.ranks.communicator)) return 0;
  if (last.kept() > 0) {
    last.load_mean();
    std::fprintf(stderr, "using the mean of %lld weights\n", static_cast<long long>(last.kept()));
  } else if (!f.best.empty() && result.best_step > 0) {
    load_model(load_checkpoint(f.best), model);
    std::fprintf(stderr, "using the best weights, of step %lld: %s\n", static_cast<long long>(result.best_step),
                 printable(f.best).c_str());
  }
  const Metrics metrics = [&] {
    const MatmulPrecision precision(options.precision);
    return evaluate_metrics([&](const Batch& b) { return classification_metrics(model(b), b.targets); }, validation);
  }();
  std::fprintf(stderr, "validation perplexity %.3f (loss %.4f), %.2f%% of tokens right\n", std::exp(metrics.at("loss")),
               metrics.at("loss"), 100 * metrics.at("accuracy"));
  std::fprintf(stderr, "checkpoint: %s\n", printable(f.checkpoint).c_str());
  print_quality(t, d, s, f);
  return 0;
}

int train(const Settings& given, Flags f, const CommandLine& line, Ranks* ranks) {
  if (!is_first(ranks)) f.log = f.plot = "", f.profile = {};  // only rank 0 writes these
  const Start start = open_start(f, f.best, is_first(ranks));
  const Checkpoint* old = start.resumed ? start.resumed.get() : start.init.get();
  if (old) translation_config(*old);  // throws Error for a checkpoint of another program
  const Settings s = settings_of(given, line, start, f.other_data);
  const std::vector<FileUse> texts = input_files(s);
  if (start.resumed)
    for (const FileUse& text : texts) check_stored_file(line, text.name, text.path, f.checkpoint);
  if (is_first(ranks)) check_files(line, texts);
  check_plot(f.plot);
  const Data d = load_data(s, old);
  const TranslationConfig config = translation_config(s, d.source, d.target);
  if (old) check_config(config, *old);
  RunOptions o = f.options(start);
  o.grad_clip = s.grad_clip, o.seed = s.seed;
  o.precision = dtype_named(s.dtype);
  o.ranks.dtype = dtype_named(s.communication_dtype);
  o.evaluation.every = s.eval_every, o.evaluation.patience = f.patience;
  o.checkpoint.best = f.best, o.ranks.communicator = ranks, o.shards = s.shards;
  o.checkpoint.texts = translator_texts(config, d.source, d.target);
  o.checkpoint.texts.insert({"settings", to_json(s)});
  for (const FileUse& text : texts) o.inputs.push_back(text.path);
  Rng rng(s.seed);
  manual_seed(s.seed);
  Translator t{old ? make_translation_model(config, *old) : make_translation_model(config, rng), d.source, d.target};
  const std::string resume = f.resume_command(line, {"--best", "--patience", "--beam", "--length-penalty"});
  return std::visit([&](auto& model) { return train_model(model, t, s, f, d, o, resume); }, t.model);
}

// Options of a search for a text of unknown length. The default limit of 1000 tokens stops a text without line feeds.
TranslateOptions search_of(const Settings& s, const Flags& f, const CommandLine& line) {
  TranslateOptions o = search_of(f);
  o.longest = line.given("--longest") ? s.longest : 1000;
  return o;
}

void translate_lines(const Translator& t, const std::string& text, const TranslateOptions& search) {
  std::vector<std::string> lines;
  for (const std::string_view line : split_lines(text)) lines.emplace_back(line);
  for (const std::string& made : translate(t, lines, search)) print_text(made + "\n");
  TokenCounts counts;
  for (const std::string& line : lines) counts.add(t.source, t.source.encode(line));
  if (!counts.text().empty()) std::fprintf(stderr, "%s\n", counts.text().c_str());
}

// Reads the text of a file or a folder. Sets `name` to the name of its lines in messages: "FILE, line" or "FILE, text".
std::string text_to_translate(const Settings& s, const std::string& file, std::string& name) {
  TextReport report;
  ReadTextOptions reading = reading_options(s.text, &report);
  reading.may_be_empty = true;
  const std::string text = read_text(file, reading);
  if (!report.text().empty()) std::fprintf(stderr, "%s\n", printable(report.text()).c_str());
  // If lines were left out or there are several files, the numbers are not those that an editor shows.
  const bool has_its_lines = report.skipped == 0 && !std::filesystem::is_directory(file);
  name = shown_file(file) + (has_its_lines ? ", line" : ", text");
  return text;
}

// Draws the attention as in figure 8.1 of the textbook: source words across, words of the translation down.
void draw_alignment(const Translator& t, const std::string& sentence, const TranslateOptions& search, const Flags& f) {
  const std::vector<std::string> source = {sentence};
  const std::string target = translate(t, source, search)[0];
  const Alignment a = align(t, source[0], target);
  std::vector<std::vector<double>> values;
  for (Index i = 0; i < a.weights.dim(0); ++i) values.push_back(a.weights[i].to_vector<double>());
  // A word outside the vocabulary is shown as it is in the text.
  const auto labels = [](const Tokenizer& tokenizer, Tokens ids, const std::string& text) {
    ids.pop_back();
    std::vector<std::string> list = token_labels(tokenizer, ids);
    if (tokenizer.kind() == "word")
      for (std::size_t i = 0; const std::string_view word : split_words(text)) list[i++] = word;
    list.emplace_back("</s>");
    return list;
  };
  plot_matrix(f.alignments, "Attention of each target token", values, labels(t.target, a.target, target),
              labels(t.source, a.source, normalized(source[0], t.source.unicode())));
  std::printf("%s\n  %s\ndrawn: %s\n", printable(source[0]).c_str(), target.c_str(), printable(f.alignments).c_str());
}

// Runs --translate, --text or --alignments. Returns the exit code.
int use(const Settings& s, const Flags& f, const CommandLine& line) {
  check_plot(f.alignments);
  const Translator t = load_translator(mean_of_last_weights(load_checkpoint(f.checkpoint)));
  TranslateOptions search = search_of(s, f, line);
  if (line.given("--translate")) {
    const std::string text = text_to_translate(s, f.translate, search.name);
    translate_lines(t, text, search);
  } else if (f.alignments.empty()) {
    search.name = "--text, line";
    translate_lines(t, f.text, search);
  } else {
    const bool dates = t.source.kind() == "char";
    if (f.text.empty() && !dates) throw UsageError("--alignments needs a sentence; give --text");
    draw_alignment(t, f.text.empty() ? held_out_dates().sentence(1, 0).source : f.text, search, f);
  }
  return 0;
}

void add_run_flags(CommandLine& line, Flags& f) {
  line.group("Run");
  f.add_to(line, "losses", {.input_with = {"--translate", "--text", "--alignments"}});
  line.add("--best", f.best, "File for the weights of the best evaluation, which are scored at the end",
           file_name("FILE", FileRole::checkpoint));
  line.add("--patience", f.patience, "Stop after this many evaluations without improvement; 0: never [0]", whole(0));
  line.group("Translating, instead of training");
  line.add("--translate", f.translate, "Translate the lines of a file; - for standard input", text_name("FILE"));
  line.add("--text", f.text, "Translate this text", anything("TEXT"));
  line.add("--alignments", f.alignments, "Plot the attention weights of the translation of --text [of a date]",
           file_name("FILE.svg|png", FileRole::output));
  line.add("--beam", f.beam, "Beam size, also after training; 1: greedy [5]", whole(1, 1000));
  line.add("--length-penalty", f.length_penalty,
           "Higher values prefer longer texts: the score is log probability / tokens^X [1]", number(0, 10));
  line.add_switch("--unknown", f.unknown, "Allow <unk> in translations");
}

}  // namespace

int main(int argc, char** argv) {
  CommandLine line("Trains a translator and translates", "translate");
  Settings s;
  Flags f;
  SettingFields(s).add_flags(line);
  add_run_flags(line, f);
  return run_program(line, argc, argv, [&] {
    const auto work = [&](Ranks* ranks) {
      if (translates(line)) return use(s, f, line);
      return train(s, f, line, ranks);
    };
    return run_on_ranks(f.threads, work, &line);
  });
}

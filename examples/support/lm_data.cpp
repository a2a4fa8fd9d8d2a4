// Loads stories, texts and token files, splits them and makes batches.
#include "examples/support/lm_data.hpp"

#include "examples/support/program.hpp"
#include "examples/support/story_seeds.hpp"

#include <heed/core/random.hpp>
#include <heed/data/text.hpp>

namespace heed::examples {
namespace {

constexpr std::size_t kHeldOutCharacters = 100000;
constexpr std::uint64_t kWindowStream = std::uint64_t{0x57081} << 44;  // stream for the starts of windows in stories

// Batches of stories that never repeat: each row of each step has its own stories. If the context can hold the longest
// story, a row begins with the line feed before a story. A shorter context begins anywhere in a story. Otherwise no
// model would learn the ends of stories.
class StoryBatches {
 public:
  StoryBatches(Tokenizer tokenizer, WindowOptions window)
      : tokenizer_(std::move(tokenizer)), window_(window), order_(batching()) {}

  std::string fingerprint() const { return "built-in stories"; }
  Batching batching() const { return {.rows = window_.batch}; }
  StoryBatches continued(const std::vector<BatchesRead>& read) const {
    StoryBatches next = *this;
    next.order_ = order_.continued(read);
    return next;
  }

  Batch batch(std::uint64_t seed, std::uint64_t step) const {
    const Index rows = window_.batch, length = window_.context;
    Tensor x = Tensor::empty({rows, length}, DType::int32), y = Tensor::empty({rows, length}, DType::int32);
    for (Index r = 0; r < rows; ++r) {
      // No story is shorter than 32 characters, so the rows of all steps use different stories.
      const std::uint64_t stories_a_row = static_cast<std::uint64_t>(length) / 32 + 2;
      const std::uint64_t first = order_.number(step, r) * stories_a_row;
      const Tokens ids = tokenizer_.encode(window(seed, first));
      require(static_cast<Index>(ids.size()) == length + 1, "stories: the tokenizer makes ", ids.size(),
              " tokens from ", length + 1, " characters; it must be char or byte");
      std::copy(ids.begin(), ids.end() - 1, x.ptr<std::int32_t>() + r * length);
      std::copy(ids.begin() + 1, ids.end(), y.ptr<std::int32_t>() + r * length);
    }
    return {x, y, rows * length};
  }

 private:
  // A window of context + 1 characters of the text that begins with the line feed before story `first`.
  std::string window(std::uint64_t seed, std::uint64_t first) const {
    const auto length = static_cast<std::size_t>(window_.context);
    std::string text = "\n" + stories_.story(training_stories(seed), first).text;
    std::size_t begin = 0;
    if (length < kLongestStory)
      begin = static_cast<std::size_t>(Rng(seed, kWindowStream + first).integer(static_cast<Index>(text.size() - 1)));
    for (std::uint64_t i = first + 1; text.size() < begin + length + 1; ++i)
      text += stories_.story(training_stories(seed), i).text;
    return text.substr(begin, length + 1);
  }

  Stories stories_;
  Tokenizer tokenizer_;
  WindowOptions window_;
  detail::RowOrder order_;
};

LmData story_data(const LmSettings& s, const std::string* stored_tokenizer) {
  if (s.tokenizer != "char" && s.tokenizer != "byte")
    throw UsageError(stored_tokenizer
                         ? "the tokenizer of the checkpoint is neither char nor byte, but the built-in "
                           "stories require one of these; give --data"
                         : "--tokenizer is " + s.tokenizer + "; the built-in stories require char or byte");
  const Stories stories;
  Tokenizer tokenizer = stored_tokenizer ? Tokenizer::from_json(*stored_tokenizer)
                                         : make_tokenizer(s.tokenizer, "\n" + stories.text(0, 1000000));
  const std::string text = stories.corpus(held_out_stories(s.seed), kHeldOutCharacters);
  const std::int32_t line_feed = tokenizer.encode("\n").front();
  const WindowOptions window{.batch = s.batch, .context = s.gpt.context, .separator = line_feed};
  const WholeSplit held_out(TokenSource(tokenizer.encode(text), tokenizer.vocabulary_size()), window);

  std::optional<StoryFloor> floor, eval_floor;
  if (s.model == "lm") {
    floor = story_floor(stories, held_out, tokenizer);
    eval_floor = story_floor(stories, held_out, tokenizer, std::min(s.eval_batches, held_out.size()));
  }
  return {tokenizer,  StoryBatches(tokenizer, window), held_out, held_out, {.separator = line_feed}, floor,
          eval_floor, "built-in stories, unlimited"};
}

struct Corpus {
  Tokenizer tokenizer;
  TokenSource tokens;
  std::string changes = {};  // made while the text was read; for people
};

Corpus read_corpus(const LmSettings& s, const std::string* stored_tokenizer) {
  const std::vector<std::filesystem::path> paths(s.data.begin(), s.data.end());
  std::optional<Tokenizer> stored;
  if (stored_tokenizer) stored = Tokenizer::from_json(*stored_tokenizer);
  for (const std::filesystem::path& path : paths) {
    if (!is_token_file(path)) continue;
    if (paths.size() > 1)
      throw UsageError("--data has " + std::to_string(paths.size()) + " files, but " + path.string() +
                       " is a token file; a token file must be the only file");
    const TokenSource tokens = TokenSource::open(path);
    const Tokenizer tokenizer = tokens.tokenizer();
    tokens.hash();  // reads the whole file, so damage is found before training
    require(!stored || stored->hash() == tokenizer.hash(), "resume: ", path.string(),
            " was made with another tokenizer than the checkpoint; the tokenizers must be the same");
    return {tokenizer, tokens};
  }
  TextReport report;
  const std::string text = read_text(paths, reading_options(s.text, &report));
  const Tokenizer tokenizer = stored ? *stored : make_tokenizer(s.tokenizer, text, unicode_form_of(s.text));
  try {
    return {tokenizer, TokenSource(encode_text(tokenizer, text), tokenizer.vocabulary_size()), report.text()};
  } catch (const EncodeError& e) {
    if (stored) fail("resume: the data differ from those of the checkpoint; they must be the same: ", e.what());
    throw;
  }
}

// A description of unknown tokens; empty if there are none.
std::string unknown_tokens(const Tokenizer& tokenizer, const TokenSource& tokens) {
  TokenCounts counts;
  Tokens piece;
  for (Index at = 0; at < tokens.size(); at += static_cast<Index>(piece.size())) {
    piece.resize(static_cast<std::size_t>(std::min<Index>(tokens.size() - at, 1 << 16)));
    tokens.read(at, piece);
    counts.add(tokenizer, piece);
  }
  return counts.text();
}

LmData corpus_data(const LmSettings& s, const std::string* stored_tokenizer) {
  const auto [tokenizer, tokens, changes] = read_corpus(s, stored_tokenizer);
  WindowOptions window{.batch = s.batch, .context = s.gpt.context, .name = "the training part of the text"};
  const auto [training, validation] = tokens.split(s.val_fraction);
  EvaluationSet held_out;
  if (s.val_fraction > 0)
    held_out = WholeSplit(validation, {.batch = std::max<Index>(s.batch, 16),
                                       .context = s.gpt.context,
                                       .name = "the validation part of the text (--val-fraction)"});
  std::string description = std::to_string(training.size()) + " tokens for training, " +
                            std::to_string(validation.size()) + " for validation, vocabulary " +
                            std::to_string(tokenizer.vocabulary_size());
  if (const std::string unknown = unknown_tokens(tokenizer, validation); !unknown.empty())
    description += "\nvalidation: " + unknown;
  if (!changes.empty()) description = printable(changes) + "\n" + description;
  return {tokenizer, LanguageModelBatches(training, window), held_out, held_out, {}, {}, {}, description};
}

}  // namespace

LmData load_data(const LmSettings& s, const std::string* stored_tokenizer) {
  LmData data = s.data.empty() ? story_data(s, stored_tokenizer) : corpus_data(s, stored_tokenizer);
  if (s.model != "mlm") return data;
  data.masks.vocabulary = data.tokenizer.vocabulary_size();
  data.masks.mask = static_cast<std::int32_t>(data.masks.vocabulary);
  data.training = MaskedBatches(data.training, data.masks);
  data.validation = MaskedEvaluation(data.texts, data.masks, s.seed);
  return data;
}

}  // namespace heed::examples

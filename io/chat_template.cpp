// Chat templates: writes conversations, and finds the tokens of answers.
#include <algorithm>
#include <heed/core/check.hpp>
#include <heed/data/text.hpp>
#include <heed/io/chat_template.hpp>
#include <heed/io/detail/chat_style.hpp>
#include <heed/io/tokenizer/text.hpp>
#include <heed/io/tokenizer/unicode.hpp>

namespace heed {

using detail::ChatStyle;
using detail::ChatText;
using detail::SystemMessage;

namespace {

// Removes white space at the ends, as Python's str.strip() does.
std::string_view trimmed(std::string_view text) {
  const auto is_blank = [](char32_t c) { return detail::tokenizer::is_white_space(c) || (0x1C <= c && c <= 0x1F); };
  std::size_t begin = 0, end = text.size();
  for (std::size_t i = 0; begin < end && is_blank(detail::tokenizer::next_code_point(text, i));) begin = i;
  while (end > begin) {
    const std::size_t at = detail::tokenizer::previous(text, end);
    if (std::size_t i = at; !is_blank(detail::tokenizer::next_code_point(text, i))) break;
    end = at;
  }
  return text.substr(begin, end - begin);
}

std::string_view without_lines_before(std::string_view text) {
  return text.substr(std::min(text.find_first_not_of('\n'), text.size()));
}
std::string_view without_lines_after(std::string_view text) { return text.substr(0, text.find_last_not_of('\n') + 1); }

// An answer of Qwen3: the text that follows the thoughts, and the thoughts.
struct Thoughts {
  std::string_view content, thoughts;
};
Thoughts divide_thoughts(std::string_view content) {
  constexpr std::string_view kOpen = "<think>", kClose = "</think>";
  const std::size_t close = content.find(kClose);
  if (close == content.npos) return {content, {}};
  std::string_view thoughts = without_lines_after(content.substr(0, close));
  if (const std::size_t open = thoughts.rfind(kOpen); open != thoughts.npos)
    thoughts.remove_prefix(open + kOpen.size());
  return {without_lines_before(content.substr(content.rfind(kClose) + kClose.size())), without_lines_before(thoughts)};
}

// Appends turns to a text.
class TurnWriter {
 public:
  TurnWriter(const ChatStyle& style, ChatText& to) : style_(style), to_(to) {}

  void token(std::string_view text) {
    if (text.empty()) return;
    to_.tokens.emplace_back(to_.text.size(), text);
    to_.text += text;
  }
  void text(std::string_view text) { to_.text += text; }
  void open(std::string_view role) {
    token(style_.open);
    text(role);
    token(style_.middle);
    text(style_.head);
  }

  // What precedes the turns of the conversation, whose first message is given.
  void system(const ChatMessage& first, std::string_view otherwise, std::string_view date) {
    const bool given = first.role == "system", dated = style_.system == SystemMessage::dated;
    if (!dated && (given || otherwise.empty())) return;
    open("system");
    if (dated) {
      for (const std::string_view part :
           {std::string_view("Cutting Knowledge Date: December 2023\nToday Date: "), date, std::string_view("\n\n")})
        text(part);
      if (given) content(trimmed(first.content));
    } else {
      text(otherwise);
    }
    close();
  }

  // A turn that is not an answer. The content of the other message, if there is one, precedes its content.
  void turn(const ChatMessage& message, const ChatMessage* prefix) {
    open(message.role);
    begin_content();
    if (prefix != nullptr) {
      content(prefix->content);
      text("\n\n");
    }
    content(style_.trims ? trimmed(message.content) : std::string_view(message.content));
    close();
  }

  // `after`: no question follows. `last`: no message follows.
  void answer(std::string_view given, bool after, bool last) {
    open(style_.assistant);
    ChatText::Answer a;
    if (!to_.tokens.empty()) a.marker = to_.tokens.back().first;
    a.begin = to_.text.size();
    begin_content();
    const std::string_view all = style_.trims ? trimmed(given) : given;
    const Thoughts parts = style_.thinks ? divide_thoughts(all) : Thoughts{all, {}};
    if (style_.thinks && after && (last || !parts.thoughts.empty())) {
      text("<think>\n");
      content(without_lines_after(without_lines_before(parts.thoughts)));
      text("\n</think>\n\n");
      content(without_lines_before(parts.content));
    } else {
      content(parts.content);
    }
    if (!style_.close.empty()) a.close = to_.text.size();
    close();
    to_.answers.push_back(a);
  }

 private:
  void content(std::string_view text) {
    if (text.empty()) return;
    to_.contents.emplace_back(to_.text.size(), to_.text.size() + text.size());
    to_.text += text;
  }
  void begin_content() {
    if (style_.open.empty()) text(" ");  // plain: "user: Hello"
  }
  void close() {
    token(style_.close);
    text(style_.tail);
  }

  const ChatStyle& style_;
  ChatText& to_;
};

void check_messages(const ChatStyle& style, std::span<const ChatMessage> messages) {
  require(!messages.empty(), "chat template: there are no messages; there must be at least one");
  for (std::size_t i = 0; i < messages.size(); ++i) {
    const std::string& role = messages[i].role;
    require(role == "system" || role == "user" || role == "assistant", "chat template: message ", i, " has the role \"",
            excerpt(role), "\"; it must be system, user or assistant");
    if (const auto bad = find_invalid_utf8(messages[i].content))
      fail("chat template: message ", i, " is not UTF-8 at byte offset ", *bad);
  }
  const bool with_system = messages[0].role == "system";
  require(!with_system || style.system != SystemMessage::refused, "chat template: ", style.name,
          " has no system message; put its text into the first message of the user");
  for (std::size_t i = with_system ? 1 : 0; style.alternates && i < messages.size(); ++i) {
    const char* wanted = (i - (with_system ? 1 : 0)) % 2 == 0 ? "user" : "assistant";
    require(messages[i].role == wanted, "chat template: message ", i, " has the role ", messages[i].role,
            "; it must be ", wanted, ", because user and assistant speak in turn in ", style.name);
  }
}

// The last message of the user. Answers after it keep their thoughts.
std::size_t last_question(std::span<const ChatMessage> messages) {
  for (std::size_t i = messages.size(); i-- > 0;) {
    const std::string& content = messages[i].content;
    const bool is_tool = content.starts_with("<tool_response>") && content.ends_with("</tool_response>");
    if (messages[i].role == "user" && !is_tool) return i;
  }
  return messages.size() - 1;
}

const std::string& names_text() {
  static const std::string all = [] {
    std::string text;
    for (const ChatStyle& style : detail::chat_styles()) (text += text.empty() ? "" : ", ") += style.name;
    return text;
  }();
  return all;
}

}  // namespace

std::vector<std::string> ChatTemplate::names() {
  std::vector<std::string> all;
  for (const ChatStyle& style : detail::chat_styles()) all.emplace_back(style.name);
  return all;
}

ChatTemplate ChatTemplate::named(std::string_view name) {
  const auto styles = detail::chat_styles();
  const auto found = std::ranges::find(styles, name, &ChatStyle::name);
  require(found != styles.end(), "chat template: \"", excerpt(name), "\" is not a name; it must be one of ",
          names_text());
  return ChatTemplate(*found);
}

ChatTemplate ChatTemplate::of_text(std::string_view jinja) {
  constexpr std::size_t kLongest = std::size_t{1} << 20;
  require(jinja.size() <= kLongest, "chat template: the text has ", jinja.size(), " bytes; it must have at most ",
          kLongest);
  const auto found = detail::recognise_chat_template(jinja);
  require(found.has_value(), "chat template: the template of the model is not one that heed knows; name one of ",
          names_text());
  ChatTemplate made(*found->first);
  made.default_system_ = found->second;
  return made;
}

std::string ChatTemplate::name() const { return std::string(style_->name); }

ChatTemplate ChatTemplate::with_default_system(std::string content) const {
  require(style_->name == "chatml", "chat template: ", style_->name,
          " has no default system message; only chatml can have one");
  ChatTemplate made(*style_);
  made.default_system_ = std::move(content);
  return made;
}

std::vector<ChatText> ChatTemplate::written(std::span<const ChatMessage> messages, const ChatOptions& options) const {
  const ChatStyle& style = *style_;
  check_messages(style, messages);
  const bool plain = style.open.empty();  // each turn is encoded by itself, because no token divides them
  std::vector<ChatText> all(1);
  TurnWriter(style, all[0]).token(style.begin);
  TurnWriter(style, all[0]).system(messages[0], default_system_, options.date);
  const bool given = messages[0].role == "system", in_turn = style.system == SystemMessage::turn;
  const std::size_t first = given && !in_turn ? 1 : 0, question = last_question(messages);
  for (std::size_t i = first; i < messages.size(); ++i) {
    if (plain && i > 0) all.emplace_back();
    TurnWriter w(style, all.back());
    const ChatMessage& message = messages[i];
    const bool prefixed = style.system == SystemMessage::prefix && i == 1 && first == 1;
    if (message.role == "assistant") {
      w.answer(message.content, i > question, i + 1 == messages.size());
    } else {
      w.turn(message, prefixed ? &messages[0] : nullptr);
    }
  }
  if (options.generation_prompt) {
    if (plain) all.emplace_back();
    TurnWriter w(style, all.back());
    w.open(style.assistant);
    if (style.thinks && !options.thinking) w.text("<think>\n\n</think>\n\n");
  }
  return all;
}

std::string ChatTemplate::text(std::span<const ChatMessage> messages, const ChatOptions& options) const {
  std::string all;
  for (const ChatText& part : written(messages, options)) all += part.text;
  return all;
}

namespace {

std::int32_t id_of_token(const JsonTokenizer& tokenizer, const ChatStyle& style, std::string_view token) {
  const auto id = tokenizer.id_of(token);
  require(id && tokenizer.is_special(*id), "chat template: ", style.name, " needs the special token \"", token,
          "\", which the tokenizer ", id ? "has as ordinary text" : "lacks");
  return *id;
}

// The index in `ids` of the added token at a byte of the text.
std::size_t index_at(const JsonTokenizer::Places& places, std::size_t byte) {
  const auto found = std::ranges::lower_bound(places.added, std::pair(byte, std::size_t{0}));
  require(found != places.added.end() && found->first == byte,
          "chat template: the tokenizer does not find a token of the template at byte ", byte, " of the text");
  return found->second;
}

// Marks the tokens of answers. The head of an answer and its first characters may share a token, which then belongs to
// the answer.
void mark_answers(const JsonTokenizer& tokenizer, const ChatText& part, const JsonTokenizer::Places& places,
                  std::vector<bool>& answer) {
  const std::size_t before = answer.size();
  answer.resize(before + places.ids.size());
  for (const ChatText::Answer& a : part.answers) {
    const std::size_t from = a.marker == ChatText::kNone ? 0 : a.marker;
    std::size_t begin = a.marker == ChatText::kNone ? 0 : index_at(places, a.marker);
    const std::size_t end = a.close == ChatText::kNone ? places.ids.size() : index_at(places, a.close) + 1;
    const Tokens head = tokenizer.encode(std::string_view(part.text).substr(from, a.begin - from));
    for (std::size_t i = 0; i < head.size() && begin < end && places.ids[begin] == head[i]; ++i) ++begin;
    std::fill(answer.begin() + static_cast<std::ptrdiff_t>(before + begin),
              answer.begin() + static_cast<std::ptrdiff_t>(before + end), true);
  }
}

}  // namespace

ChatTokens ChatTemplate::tokens(const JsonTokenizer& tokenizer, std::span<const ChatMessage> messages,
                                const ChatOptions& options) const {
  for (const std::string_view token : {style_->begin, style_->open, style_->middle, style_->close})
    if (!token.empty()) id_of_token(tokenizer, *style_, token);
  ChatTokens made;
  for (const ChatText& part : written(messages, options)) {
    const auto places = options.special_in_content ? tokenizer.encode_around(part.text, {})
                                                   : tokenizer.encode_around(part.text, part.contents);
    for (const auto& [byte, token] : part.tokens)
      require(places.ids[index_at(places, byte)] == tokenizer.id_of(token),
              "chat template: the tokenizer has another token than \"", token, "\" at byte ", byte, " of the text");
    mark_answers(tokenizer, part, places, made.answer);
    made.ids.insert(made.ids.end(), places.ids.begin(), places.ids.end());
    made.special_as_text += places.special_as_text;
  }
  return made;
}

Tokens ChatTemplate::stop_tokens(const JsonTokenizer& tokenizer) const {
  if (style_->close.empty()) return tokenizer.encode("\n");
  Tokens all = {id_of_token(tokenizer, *style_, style_->close)};
  for (const std::string_view token : style_->ends)
    if (const auto id = token.empty() ? std::nullopt : tokenizer.id_of(token); id && tokenizer.is_special(*id))
      all.push_back(*id);
  return all;
}

}  // namespace heed

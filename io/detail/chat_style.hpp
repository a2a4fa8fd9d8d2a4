// The parts of which a chat template consists, and the recognition of templates.
#pragma once
#include <array>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace heed::detail {

// What becomes of a system message at the beginning.
enum class SystemMessage {
  turn,     // a turn as any other
  dated,    // a turn that begins with dates, also without a message
  prefix,   // precedes the content of the first user turn
  refused,  // not allowed
};

// A turn is: open, role, middle, head, content, close, tail. `open`, `middle` and `close` are special tokens.
struct ChatStyle {
  std::string_view name;
  std::string_view begin = {};  // the first token of the text
  std::string_view open = {}, middle = {}, head = {}, close = {}, tail = {};
  std::string_view assistant = "assistant";  // the name of the role
  SystemMessage system = SystemMessage::turn;
  bool trims = false;                         // white space at the ends of contents is removed
  bool alternates = false;                    // user and assistant speak in turn, beginning with the user
  bool thinks = false;                        // answers begin with thoughts: Qwen3
  std::array<std::string_view, 2> ends = {};  // further tokens that end an answer, if the tokenizer has them
};

// All styles. The references are valid for the run of the program.
std::span<const ChatStyle> chat_styles();

// The style of a template in Jinja, and its default system message. nullopt if the template is unknown.
std::optional<std::pair<const ChatStyle*, std::string>> recognise_chat_template(std::string_view jinja);

// A text, or a part of one that is encoded by itself.
struct ChatText {
  static constexpr std::size_t kNone = std::string_view::npos;
  using Bytes = std::pair<std::size_t, std::size_t>;  // begin and end

  // An answer of the assistant. Offsets in the text.
  struct Answer {
    std::size_t marker = kNone;  // of the last token before it; kNone: the text begins with the head
    std::size_t begin = 0;       // after the head
    std::size_t close = kNone;   // of the token that ends it; kNone: the answer ends with the text
  };

  std::string text = {};
  std::vector<Bytes> contents = {};                                   // parts of the text that come from messages
  std::vector<std::pair<std::size_t, std::string_view>> tokens = {};  // offsets of the template's special tokens
  std::vector<Answer> answers = {};
};

}  // namespace heed::detail

// Chat templates: how the messages of a conversation become one text, with the tokens between them. A published model
// has its template as a program in Jinja. heed does not run such programs. It recognises the templates of the families
// below by their text, and writes the same text and tokens as transformers' apply_chat_template().
//
// | name | models | system message |
// |---|---|---|
// | chatml | SmolLM2, Qwen1.5, Qwen2, Qwen2.5 | a turn; most templates insert a default one if it is missing |
// | qwen3 | Qwen3; answers begin with thoughts | a turn |
// | llama-3 | Llama 3 | a turn |
// | llama-3.1 | Llama 3.1, 3.2, 3.3 | always a turn, with dates |
// | gemma | Gemma 1 and 2 | refused |
// | gemma-3 | Gemma 3 | precedes the first message of the user |
// | plain | models without a template | a line "system: ..." |
//
// Special tokens inside the content of a message are ordinary text, so that a message cannot end its turn.
//
// Example:
//
//   const ChatTemplate chat = ChatTemplate::named("chatml");
//   const std::vector<ChatMessage> messages = {{"user", "Hello"}};
//   std::cout << chat.text(messages, {.generation_prompt = true});  // <|im_start|>user, Hello<|im_end|>, ...
#pragma once
#include <filesystem>
#include <heed/data/chat_message.hpp>
#include <heed/io/gguf.hpp>
#include <heed/io/tokenizer_json.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace heed {

// How messages are written.
struct ChatOptions {
  bool generation_prompt = false;    // whether the text ends with the beginning of an answer (add_generation_prompt)
  bool special_in_content = false;   // special tokens inside a content are such tokens, as in transformers
  bool thinking = true;              // qwen3: false adds empty thoughts to the generation prompt (enable_thinking)
  // llama-3.1: the "Today Date" of the system turn (date_string). The templates of Llama 3.2 and 3.3 have the date of
  // the day in transformers; here, the same conversation always has the same tokens.
  std::string date = "26 Jul 2024";
};

// The tokens of a conversation.
struct ChatTokens {
  Tokens ids = {};  // the tokens
  // Per token: whether it belongs to an answer of the assistant: all tokens after the generation prompt, with the token
  // that ends the answer. A loss on answers counts these tokens as targets.
  std::vector<bool> answer = {};
  Index special_as_text = 0;  // the number of special tokens inside contents that became ordinary text
};

namespace detail {
struct ChatStyle;
struct ChatText;
}  // namespace detail

// A chat template. An immutable value.
class ChatTemplate {
 public:
  // The template of a name in the table above, without a default system message. Throws Error for another name.
  static ChatTemplate named(std::string_view name);
  // The template of a text in Jinja, with its default system message. Throws Error, which lists the names, if the
  // template is not one that heed knows.
  static ChatTemplate of_text(std::string_view jinja);
  // All names, in the order of the table.
  static std::vector<std::string> names();

  // The name in the table.
  std::string name() const;
  // The system message of conversations that have none; empty if no turn is inserted.
  const std::string& default_system() const { return default_system_; }
  // The same template with another default system message. Throws Error if the style is not chatml.
  ChatTemplate with_default_system(std::string content) const;

  // The text of a conversation. Throws Error if there are no messages, for a role other than system, user and
  // assistant, and for orders that the template does not allow (gemma: user and assistant in turn).
  std::string text(std::span<const ChatMessage> messages, const ChatOptions& options = {}) const;
  // The tokens of the text. Throws Error as text(), if the tokenizer lacks a token of the template, and as
  // JsonTokenizer::encode().
  ChatTokens tokens(const JsonTokenizer& tokenizer, std::span<const ChatMessage> messages,
                    const ChatOptions& options = {}) const;
  // The tokens that end an answer: the token that ends a turn, and the tokenizer's tokens for the end of a text. For
  // "plain", the line feed. Throws Error if the tokenizer lacks the token that ends a turn.
  Tokens stop_tokens(const JsonTokenizer& tokenizer) const;

 private:
  explicit ChatTemplate(const detail::ChatStyle& style) : style_(&style) {}
  std::vector<detail::ChatText> written(std::span<const ChatMessage> messages, const ChatOptions& options) const;

  const detail::ChatStyle* style_;
  std::string default_system_;
};

// The Jinja text of the template of a model: a folder's chat_template.jinja, or else chat_template in its
// tokenizer_config.json (the entry "default" of a list). nullopt if the folder has none. Throws Error if a file cannot
// be read, has more than 16 MiB, or is no JSON.
std::optional<std::string> chat_template_text(const std::filesystem::path& folder);
// The same for a GGUF file: tokenizer.chat_template.
std::optional<std::string> chat_template_text(const GgufFile& file);

}  // namespace heed

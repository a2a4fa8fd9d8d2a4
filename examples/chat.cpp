// A conversation with a model in a terminal.
#include <poll.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdio>
#include <heed/core/parallel.hpp>
#include <heed/io/chat_template.hpp>
#include <heed/io/pretrained.hpp>
#include <iostream>

#include "examples/support/model_weights.hpp"
#include "examples/support/program.hpp"

namespace {

using namespace heed;
using namespace heed::examples;

std::atomic<bool> interrupted = false;  // by Ctrl-C, which ends an answer

// The conversation, and how the model continues it.
class Conversation {
 public:
  Conversation(const Pretrained& p, ChatTemplate chat, const TextOptions& options, const std::string& system)
      : p_(p),
        tokenizer_(*p.lm.tokenizer.as<JsonTokenizer>()),
        chat_(std::move(chat)),
        options_(options),
        rng_(options.seed) {
    if (!system.empty()) messages_.push_back({"system", system});
    kept_ = messages_.size();
  }

  void reset() { messages_.resize(kept_); }

  // Answers a message of the user: calls print(piece) with pieces of whole characters. Throws Error for a message that
  // is too long or not UTF-8; the conversation is then unchanged.
  void answer(const std::string& question, const std::function<void(const std::string&)>& print) {
    std::vector<ChatMessage> messages = messages_;
    messages.push_back({"user", question});
    const Tokens prompt = prompt_within_context(messages);
    StreamDecoder decoder(p_.lm.tokenizer);
    std::string text;
    const auto give = [&](const std::string& piece) { text += piece, print(piece); };
    const Tokens stop = chat_.stop_tokens(tokenizer_);
    generate(p_.lm.model, prompt, options_.count, options_.sampling, rng_, [&](std::int32_t id) {
      if (interrupted.exchange(false) || std::ranges::find(stop, id) != stop.end()) return false;
      give(decoder.next(id));
      return true;
    });
    give(decoder.finish());
    messages.push_back({"assistant", text});
    messages_ = std::move(messages);
  }

 private:
  // The tokens of a conversation, from which the oldest turns are removed if it is too long for the context.
  Tokens prompt_within_context(std::vector<ChatMessage>& messages) {
    const Index context = p_.lm.model.options().context;
    while (true) {
      ChatTokens tokens = chat_.tokens(tokenizer_, messages, {.generation_prompt = true});
      if (static_cast<Index>(tokens.ids.size()) <= context - options_.count) return std::move(tokens.ids);
      require(messages.size() > kept_ + 2, "the message has ", tokens.ids.size(),
              " tokens with its template, and the model has a context of ", context, ", of which ", options_.count,
              " are for the answer; shorten it, or give a smaller --tokens");
      const auto oldest = messages.begin() + static_cast<std::ptrdiff_t>(kept_);
      messages.erase(oldest, oldest + 2);  // a question and its answer
    }
  }

  const Pretrained& p_;
  const JsonTokenizer& tokenizer_;
  ChatTemplate chat_;
  TextOptions options_;
  Rng rng_;
  std::vector<ChatMessage> messages_;
  std::size_t kept_ = 0;  // messages that stay: that of the system
};

ChatTemplate template_of(const Pretrained& p, const std::string& name) {
  if (!name.empty()) return ChatTemplate::named(name);
  require(!p.card.chat_template.empty(), "the model has no chat template; name one with --template");
  return ChatTemplate::of_text(p.card.chat_template);
}

// Waits until a terminal has a line, or the end of the input. Ctrl-C meanwhile discards what was typed.
void wait_for_line() {
  pollfd input{.fd = STDIN_FILENO, .events = POLLIN, .revents = 0};
  print_piece(0, "> ");
  while (::poll(&input, 1, /*milliseconds=*/100) <= 0)
    if (interrupted.exchange(false)) print_piece(0, "\nCtrl-D or /quit ends the program.\n> ");
}

// Reads lines and answers them until the input ends. A message that cannot be answered is reported.
void talk(Conversation& conversation) {
  const bool terminal = ::isatty(STDIN_FILENO) == 1;
  for (std::string line; true; flush_output()) {
    if (terminal) wait_for_line();
    interrupted = false;
    if (!std::getline(std::cin, line)) return print_text(terminal ? "\n" : "");
    if (line.ends_with('\r')) line.pop_back();
    if (line == "/quit") return;
    if (line == "/reset") {
      conversation.reset();
      print_text("New conversation.\n");
    } else if (!line.empty()) {
      try {
        conversation.answer(line, [](const std::string& piece) { print_piece(0, piece); });
      } catch (const Error& error) {
        std::fprintf(stderr, "chat: %s", printable(error.what()).c_str());
      }
      interrupted = false;
      print_text("\n");
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  CommandLine line(
      "Talks with a model. Lines are messages; /reset starts a new conversation, /quit or the end of the input ends "
      "the program, Ctrl-C ends an answer",
      "chat");
  std::string model, system, name, dtype = "f32";
  TextOptions options{.count = 512, .sampling = {.temperature = 0.7, .top_p = 0.9}};
  int thread_count = 0;
  line.add("--model", model, "Folder with config.json and safetensors, GGUF file, or checkpoint", model_name(),
           {.required = true});
  line.add("--system", system, "Message that tells the model its role [that of the template, if any]",
           anything("TEXT"));
  line.add("--template", name, "Chat template [that of the model]", one_of(ChatTemplate::names()));
  line.add("--tokens", options.count, "Max tokens of an answer [512, or half the context of the model]", whole(1));
  line.add_sampling(options.sampling);
  line.add("--dtype", dtype,
           "Type of the weights: f32, bf16, q8_0, or stored, which keeps quantized weights of a GGUF file [f32]",
           weights_type());
  line.add("--seed", options.seed, "Seed of the answers [1]", seed_number());
  line.add_threads(thread_count);
  return run_program(line, argc, argv, [&] {
    set_threads(thread_count);
    const Pretrained p = load_pretrained(model, weights_named(dtype));
    print_quantized(p.quantized);
    require(p.lm.tokenizer.as<JsonTokenizer>() != nullptr, "the tokenizer of the model is of the kind ",
            p.lm.tokenizer.kind(), "; chat requires a published model, with a tokenizer.json or in a GGUF file");
    if (!line.given("--tokens")) options.count = std::min(options.count, p.lm.model.options().context / 2);
    Conversation conversation(p, template_of(p, name), options, system);
    std::signal(SIGINT, [](int) { interrupted = true; });
    talk(conversation);
    return 0;
  });
}

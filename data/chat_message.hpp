// A message of a conversation, for chat templates and for data of fine-tuning.
//
// Example:
//
//   const std::vector<ChatMessage> messages = {{"user", "Hello"}, {"assistant", "Good morning"}};
//   std::cout << messages[1].content << '\n';  // Good morning
#pragma once
#include <string>

namespace heed {

// One message of a conversation.
struct ChatMessage {
  std::string role = {};     // "system", "user" or "assistant"; a chat template decides which roles it takes
  std::string content = {};  // UTF-8
};

}  // namespace heed

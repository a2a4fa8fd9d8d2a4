// Files in the folder of a published model.
#pragma once
#include <filesystem>
#include <heed/io/json.hpp>
#include <heed/io/pretrained.hpp>
#include <optional>
#include <string>

namespace heed::detail::pretrained {

// The text of a small file. Throws Error if it cannot be read.
std::string text_in(const std::filesystem::path& file);
// A file with a JSON object, which may be absent.
std::optional<JsonValue> json_in(const std::filesystem::path& file);

// How sentence-transformers pools: modules.json, the configurations of its modules, and the number of tokens of a text.
// nullopt without modules.json, or without a module that pools. Throws Error for modules and fields that would change
// the vectors and that encode_texts() does not support.
std::optional<SentencePooling> pooling_in(const std::filesystem::path& folder);

}  // namespace heed::detail::pretrained

// Chat templates in the files of models.
#include <heed/core/check.hpp>
#include <heed/data/detail/disk.hpp>
#include <heed/io/chat_template.hpp>
#include <nlohmann/json.hpp>

namespace heed {
namespace {

std::string read_small(const std::filesystem::path& path) {
  const detail::InputFile file("chat_template_text", path);
  constexpr std::size_t kMaxBytes = std::size_t{16} << 20;
  require(file.size() <= kMaxBytes, "chat_template_text: ", path.native(), " has ", file.size(),
          " bytes; it must have at most ", kMaxBytes);
  std::string text(file.size(), '\0');
  file.read_at(0, reinterpret_cast<unsigned char*>(text.data()), text.size());
  return text;
}

}  // namespace

std::optional<std::string> chat_template_text(const std::filesystem::path& folder) {
  if (const auto path = folder / "chat_template.jinja"; std::filesystem::exists(path)) return read_small(path);
  const auto path = folder / "tokenizer_config.json";
  if (!std::filesystem::exists(path)) return std::nullopt;
  const auto json = nlohmann::json::parse(read_small(path), nullptr, false);
  require(json.is_object(), "chat_template_text: ", path.native(), " must be a JSON object");
  const auto found = json.find("chat_template");
  if (found == json.end() || found->is_null()) return std::nullopt;
  if (found->is_string()) return found->get<std::string>();
  for (const auto& entry : *found) {  // {"name": "default", "template": "..."}
    const bool named = entry.is_object() && entry.contains("name") && entry["name"] == "default";
    if (named && entry.contains("template") && entry["template"].is_string())
      return entry["template"].get<std::string>();
  }
  fail("chat_template_text: ", path.native(),
       ": chat_template must be a text, or a list in which one entry has the name \"default\" and a template");
}

std::optional<std::string> chat_template_text(const GgufFile& file) {
  if (!file.has("tokenizer.chat_template")) return std::nullopt;
  return file.text("tokenizer.chat_template");
}

}  // namespace heed

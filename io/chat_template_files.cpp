// Chat templates in the files of models.
#include <heed/data/detail/disk.hpp>
#include <heed/io/chat_template.hpp>
#include <heed/io/json.hpp>

namespace heed {

std::optional<std::string> chat_template_text(const std::filesystem::path& folder) {
  constexpr const char* kOp = "chat_template_text";
  if (const auto path = folder / "chat_template.jinja"; std::filesystem::exists(path))
    return detail::read_small_file(kOp, path);
  const auto path = folder / "tokenizer_config.json";
  if (!std::filesystem::exists(path)) return std::nullopt;
  const std::string source = std::string(kOp) + ": " + path.native();
  const detail::JsonValue json = detail::parse_json_object(detail::read_small_file(kOp, path), source);
  const detail::JsonView view(json, source);
  if (!view.has("chat_template")) return std::nullopt;
  const detail::JsonView text = view.at("chat_template");
  if (text.is_text()) return text.text();
  if (text.is(detail::JsonValue::Kind::array))  // {"name": "default", "template": "..."}
    for (const detail::JsonView& entry : text.items())
      if (entry.is(detail::JsonValue::Kind::object) && entry.text_or("name", "") == "default")
        return entry.at("template").text();
  text.refuse("must be a text, or a list in which one entry has the name \"default\" and a template");
}

std::optional<std::string> chat_template_text(const GgufFile& file) {
  if (!file.has("tokenizer.chat_template")) return std::nullopt;
  return file.text("tokenizer.chat_template");
}

}  // namespace heed

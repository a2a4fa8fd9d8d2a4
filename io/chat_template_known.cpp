// Known chat templates, and their recognition.
#include <algorithm>
#include <heed/core/check.hpp>
#include <heed/data/text.hpp>
#include <heed/io/detail/chat_style.hpp>

namespace heed::detail {
namespace {

constexpr ChatStyle kStyles[] = {
    {.name = "chatml",
     .open = "<|im_start|>",
     .head = "\n",
     .close = "<|im_end|>",
     .tail = "\n",
     .ends = {"<|endoftext|>"}},
    {.name = "qwen3",
     .open = "<|im_start|>",
     .head = "\n",
     .close = "<|im_end|>",
     .tail = "\n",
     .thinks = true,
     .ends = {"<|endoftext|>"}},
    {.name = "llama-3",
     .begin = "<|begin_of_text|>",
     .open = "<|start_header_id|>",
     .middle = "<|end_header_id|>",
     .head = "\n\n",
     .close = "<|eot_id|>",
     .trims = true,
     .ends = {"<|end_of_text|>", "<|eom_id|>"}},
    {.name = "llama-3.1",
     .begin = "<|begin_of_text|>",
     .open = "<|start_header_id|>",
     .middle = "<|end_header_id|>",
     .head = "\n\n",
     .close = "<|eot_id|>",
     .system = SystemMessage::dated,
     .trims = true,
     .ends = {"<|end_of_text|>", "<|eom_id|>"}},
    {.name = "gemma",
     .begin = "<bos>",
     .open = "<start_of_turn>",
     .head = "\n",
     .close = "<end_of_turn>",
     .tail = "\n",
     .assistant = "model",
     .system = SystemMessage::refused,
     .trims = true,
     .alternates = true,
     .ends = {"<eos>"}},
    {.name = "gemma-3",
     .begin = "<bos>",
     .open = "<start_of_turn>",
     .head = "\n",
     .close = "<end_of_turn>",
     .tail = "\n",
     .assistant = "model",
     .system = SystemMessage::prefix,
     .trims = true,
     .alternates = true,
     .ends = {"<eos>"}},
    {.name = "plain", .head = ":", .tail = "\n"},
};

// Patterns of squeezed templates (see Squeezer). kAny stands for any text: statements about tools, images and dates,
// which do not concern messages of text. kSystem stands for the default system message.
constexpr char kAny = '\1', kSystem = '\2';

struct KnownTemplate {
  std::string_view style, pattern;
};

constexpr KnownTemplate kKnown[] = {
    // the original ChatML
    {"chatml",
     "{%formessageinmessages%}{{'<|im_start|>'+message.role+'\n'+message.content+'<|im_end|>\n'}}{%endfor%}"
     "{%ifadd_generation_prompt%}{{'<|im_start|>assistant\n'}}{%endif%}"},
    {"chatml",
     "{%ifnotadd_generation_promptisdefined%}{%setadd_generation_prompt=false%}{%endif%}"
     "{%formessageinmessages%}{{'<|im_start|>'+message.role+'\n'+message.content+'<|im_end|>\n'}}{%endfor%}"
     "{%ifadd_generation_prompt%}{{'<|im_start|>assistant\n'}}{%endif%}"},
    // SmolLM2, Qwen1.5, Qwen2
    {"chatml",
     "{%formessageinmessages%}{%ifloop.firstandmessages[0].role!='system'%}"
     "{{'<|im_start|>system\n\2<|im_end|>\n'}}{%endif%}"
     "{{'<|im_start|>'+message.role+'\n'+message.content+'<|im_end|>\n'}}{%endfor%}"
     "{%ifadd_generation_prompt%}{{'<|im_start|>assistant\n'}}{%endif%}"},
    // Qwen2.5
    {"chatml",
     "{%iftools%}\1{%else%}{%ifmessages[0].role=='system'%}"
     "{{'<|im_start|>system\n'+messages[0].content+'<|im_end|>\n'}}{%else%}"
     "{{'<|im_start|>system\n\2<|im_end|>\n'}}{%endif%}{%endif%}{%formessageinmessages%}"
     "{%if(message.role=='user')or(message.role=='system'andnotloop.first)"
     "or(message.role=='assistant'andnotmessage.tool_calls)%}"
     "{{'<|im_start|>'+message.role+'\n'+message.content+'<|im_end|>\n'}}"
     "{%elifmessage.role=='assistant'%}\1{%elifmessage.role=='tool'%}\1{%endfor%}"
     "{%ifadd_generation_prompt%}{{'<|im_start|>assistant\n'}}{%endif%}"},
    {"qwen3",
     "{%iftools%}\1{%else%}{%ifmessages[0].role=='system'%}"
     "{{'<|im_start|>system\n'+messages[0].content+'<|im_end|>\n'}}{%endif%}{%endif%}"
     "{%setns=namespace(multi_step_tool=true,last_query_index=messages|length-1)%}{%formessageinmessages[::-1]%}"
     "\1{%setns.last_query_index=index%}{%endif%}{%endfor%}{%formessageinmessages%}\1"
     "{%if(message.role=='user')or(message.role=='system'andnotloop.first)%}"
     "{{'<|im_start|>'+message.role+'\n'+\1content+'<|im_end|>\n'}}"
     "{%elifmessage.role=='assistant'%}\1.split('</think>')[0].rstrip('\n').split('<think>')[-1].lstrip('\n')%}\1"
     "{%ifloop.index0>ns.last_query_index%}{%ifloop.lastor(notloop.lastandreasoning_content)%}"
     "{{'<|im_start|>'+message.role+'\n<think>\n'+reasoning_content.strip('\n')+'\n</think>\n\n'+"
     "content.lstrip('\n')}}{%else%}{{'<|im_start|>'+message.role+'\n'+content}}{%endif%}{%else%}"
     "{{'<|im_start|>'+message.role+'\n'+content}}{%endif%}{%ifmessage.tool_calls%}\1{{'<|im_end|>\n'}}"
     "{%elifmessage.role=='tool'%}\1{%endfor%}{%ifadd_generation_prompt%}{{'<|im_start|>assistant\n'}}"
     "{%ifenable_thinkingisdefinedandenable_thinkingisfalse%}{{'<think>\n\n</think>\n\n'}}{%endif%}{%endif%}"},
    {"llama-3",
     "{%setloop_messages=messages%}{%formessageinloop_messages%}"
     "{%setcontent='<|start_header_id|>'+message.role+'<|end_header_id|>\n\n'+message.content|trim+'<|eot_id|>'%}"
     "{%ifloop.index0==0%}{%setcontent=bos_token+content%}{%endif%}{{content}}{%endfor%}"
     "{%ifadd_generation_prompt%}{{'<|start_header_id|>assistant<|end_header_id|>\n\n'}}{%endif%}"},
    {"llama-3.1",
     "{{bos_token}}\1{%setdate_string='26 Jul 2024'%}\1"
     "{%ifmessages[0].role=='system'%}{%setsystem_message=messages[0].content|trim%}{%setmessages=messages[1:]%}"
     "{%else%}{%setsystem_message=''%}{%endif%}{{'<|start_header_id|>system<|end_header_id|>\n\n'}}\1"
     "{{'Cutting Knowledge Date: December 2023\n'}}{{'Today Date: '+date_string+'\n\n'}}\1"
     "{{system_message}}{{'<|eot_id|>'}}\1{%formessageinmessages%}"
     "{%ifnot(message.role=='ipython'ormessage.role=='tool'or'tool_calls'inmessage)%}"
     "{{'<|start_header_id|>'+message.role+'<|end_header_id|>\n\n'+message.content|trim+'<|eot_id|>'}}"
     "{%elif'tool_calls'inmessage%}\1{%endfor%}"
     "{%ifadd_generation_prompt%}{{'<|start_header_id|>assistant<|end_header_id|>\n\n'}}{%endif%}"},
    {"gemma",
     "{{bos_token}}{%ifmessages[0].role=='system'%}{{raise_exception(\1)}}{%endif%}{%formessageinmessages%}"
     "{%if(message.role=='user')!=(loop.index0%2==0)%}{{raise_exception(\1)}}{%endif%}"
     "{%if(message.role=='assistant')%}{%setrole='model'%}{%else%}{%setrole=message.role%}{%endif%}"
     "{{'<start_of_turn>'+role+'\n'+message.content|trim+'<end_of_turn>\n'}}{%endfor%}"
     "{%ifadd_generation_prompt%}{{'<start_of_turn>model\n'}}{%endif%}"},
    {"gemma-3",
     "{{bos_token}}{%ifmessages[0].role=='system'%}{%ifmessages[0].contentisstring%}"
     "{%setfirst_user_prefix=messages[0].content+'\n\n'%}{%else%}\1{%endif%}{%setloop_messages=messages[1:]%}"
     "{%else%}{%setfirst_user_prefix=''%}{%setloop_messages=messages%}{%endif%}{%formessageinloop_messages%}"
     "{%if(message.role=='user')!=(loop.index0%2==0)%}{{raise_exception(\1)}}{%endif%}"
     "{%if(message.role=='assistant')%}{%setrole='model'%}{%else%}{%setrole=message.role%}{%endif%}"
     "{{'<start_of_turn>'+role+'\n'+(first_user_prefixifloop.firstelse'')}}"
     "{%ifmessage.contentisstring%}{{message.content|trim}}{%elif\1{{'<end_of_turn>\n'}}{%endfor%}"
     "{%ifadd_generation_prompt%}{{'<start_of_turn>model\n'}}{%endif%}"},
};

constexpr std::string_view kBlank = " \t\r\n";

void replace_each(std::string& text, std::string_view from, std::string_view to) {
  for (std::size_t at = text.find(from); at != text.npos; at = text.find(from, at + to.size()))
    text.replace(at, from.size(), to);
}

// Writes a template so that equal templates have equal texts: without blanks and comments outside of texts in quotes,
// all texts in single quotes, ['role'] as .role, and joined texts ('a' + 'b') as one. Text between tags is kept as
// Jinja writes it with trim_blocks and lstrip_blocks, as transformers sets them.
class Squeezer {
 public:
  explicit Squeezer(std::string_view text) : text_(text) {}

  std::string squeezed() {
    while (at_ < text_.size()) {
      const std::size_t tag =
          std::min({text_.find("{{", at_), text_.find("{%", at_), text_.find("{#", at_), text_.size()});
      between(text_.substr(at_, tag - at_), tag);
      at_ = tag;
      if (at_ < text_.size()) this->tag();
    }
    for (const char* key : {"role", "content"})
      replace_each(made_, std::string("['") + key + "']", std::string(".") + key);
    replace_each(made_, "'+'", "");
    for (const char* mark : {"{%generation%}", "{%endgeneration%}"}) replace_each(made_, mark, "");
    return made_;
  }

 private:
  // The text before the tag at `tag`.
  void between(std::string_view text, std::size_t tag) {
    const bool is_end = tag == text_.size(), block = !is_end && text_[tag + 1] != '{';
    const bool strips = !is_end && text_.substr(tag + 2).starts_with('-');
    std::size_t end = text.size();
    if (strips) {
      end = text.find_last_not_of(kBlank) + 1;
    } else if (block) {
      const std::size_t line = text.find_last_not_of(" \t") + 1;
      if (line > 0 ? text[line - 1] == '\n' : at_ == 0) end = line;
    }
    text = text.substr(0, end);
    if (after_minus_) {
      text.remove_prefix(std::min(text.find_first_not_of(kBlank), text.size()));
    } else if (after_block_ && text.starts_with('\n')) {
      text.remove_prefix(1);
    }
    if (is_end && text.ends_with('\n')) text.remove_suffix(1);  // Jinja removes the last line feed
    made_ += text;
  }

  void tag() {
    const char kind = text_[at_ + 1];
    const std::string close = kind == '{' ? "}}" : std::string{kind == '#' ? '#' : '%', '}'};
    at_ += 2;
    if (at_ < text_.size() && text_[at_] == '-') ++at_;
    after_block_ = kind != '{';
    if (kind == '#') {
      at_ = std::min(text_.find(close, at_), text_.size());
    } else {
      made_ += std::string("{") + kind;
      while (at_ < text_.size() && !text_.substr(at_).starts_with(close)) inside();
      if (made_.back() == '-') made_.pop_back();
      made_ += close;
    }
    after_minus_ = at_ > 0 && text_[at_ - 1] == '-';
    at_ = std::min(at_ + 2, text_.size());
  }

  // One character or one text in quotes inside a tag.
  void inside() {
    const char c = text_[at_++];
    if (c != '\'' && c != '"') {
      if (kBlank.find(c) == kBlank.npos) made_ += c;
      return;
    }
    made_ += '\'';
    while (at_ < text_.size() && text_[at_] != c) {
      if (text_[at_] == '\\' && at_ + 1 < text_.size()) {
        ++at_;
        made_ += text_[at_] == 'n' ? '\n' : text_[at_];
      } else {
        made_ += text_[at_];
      }
      ++at_;
    }
    made_ += '\'';
    ++at_;
  }

  std::string_view text_;
  std::size_t at_ = 0;
  bool after_minus_ = false, after_block_ = false;  // the last tag
  std::string made_;
};

// The end of the first match of a segment, which may contain kSystem once, at or after `from`; npos if there is none.
// `begin` is the beginning of the match.
struct SegmentMatch {
  std::size_t begin = std::string_view::npos, end = std::string_view::npos;
};
SegmentMatch find_segment(std::string_view text, std::size_t from, std::string_view segment, std::string& system) {
  const std::size_t hole = segment.find(kSystem);
  const std::size_t at = text.find(segment.substr(0, hole), from);
  if (at == text.npos) return {};
  if (hole == segment.npos) return {at, at + segment.size()};
  const std::string_view rest = segment.substr(hole + 1);
  const std::size_t begin = at + hole, end = text.find(rest, begin);
  if (end == text.npos || text.substr(begin, end - begin).find('\'') != text.npos) return {};
  system = text.substr(begin, end - begin);
  return {at, end + rest.size()};
}

// Whether the squeezed template is that of a pattern. Segments between kAny are searched for from left to right.
bool matches_template(std::string_view text, std::string_view pattern, std::string& system) {
  std::size_t from = 0;
  for (bool first = true;; first = false) {
    const std::size_t end = pattern.find(kAny);
    if (end == pattern.npos && !first) return text.size() >= from + pattern.size() && text.ends_with(pattern);
    const SegmentMatch match = find_segment(text, from, pattern.substr(0, end), system);
    if (match.begin == text.npos || (first && match.begin != 0)) return false;
    if (end == pattern.npos) return match.end == text.size();
    from = match.end;
    pattern.remove_prefix(end + 1);
  }
}

}  // namespace

std::span<const ChatStyle> chat_styles() { return kStyles; }

std::optional<std::pair<const ChatStyle*, std::string>> recognise_chat_template(std::string_view jinja) {
  const std::string text = Squeezer(jinja).squeezed();
  for (const KnownTemplate& known : kKnown) {
    std::string system;
    if (matches_template(text, known.pattern, system))
      return std::pair(&*std::ranges::find(kStyles, known.style, &ChatStyle::name), system);
  }
  return std::nullopt;
}

}  // namespace heed::detail

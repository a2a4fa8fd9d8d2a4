// Patterns of a tokenizer.json, by PCRE2.
#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <cstring>
#include <heed/core/check.hpp>
#include <heed/io/tokenizer/pattern.hpp>

namespace heed::detail::tokenizer {
namespace {

constexpr std::uint32_t kMaxHeap = 16 << 10, kMaxNesting = 50;  // kMaxHeap in KiB
constexpr std::size_t kMinStack = std::size_t{32} << 10, kMaxStack = std::size_t{4} << 20, kMaxSource = 4096;

// Calls a function of PCRE2 to free an object.
template <auto free>
struct Free {
  template <class T>
  void operator()(T* p) const {
    free(p);
  }
};
using CodePointer = std::unique_ptr<pcre2_code, Free<pcre2_code_free>>;
using CompileContext = std::unique_ptr<pcre2_compile_context, Free<pcre2_compile_context_free>>;

std::string message_of(int error) {
  PCRE2_UCHAR text[256] = {};
  pcre2_get_error_message(error, text, sizeof text);
  return reinterpret_cast<const char*>(text);
}

bool is_digit_or_letter(char c) {
  return ('0' <= c && c <= '9') || ('a' <= (c | 0x20) && (c | 0x20) <= 'z') || static_cast<unsigned char>(c) >= 0x80;
}

// The bytes of the escape that begins at `i`, if both libraries read it alike; 0 otherwise. Not alike are, for example,
// \h (a hexadecimal digit in Oniguruma), \v, \w and \b (other sets of characters) and references to groups.
std::size_t common_escape(std::string_view p, std::size_t i) {
  if (i + 1 >= p.size()) return 0;
  const char c = p[i + 1];
  if (!is_digit_or_letter(c)) return 2;
  if (std::strchr("sSdDrntf", c) != nullptr) return 2;
  if (c == 'p' || c == 'P' || c == 'x') {
    if (i + 2 >= p.size() || p[i + 2] != '{') return 0;
    const std::size_t end = p.find('}', i);
    return end == p.npos ? 0 : end + 1 - i;
  }
  return 0;
}

// The bytes of the beginning of a group at `i` that both libraries read alike; 0 otherwise. Verbs, recursion,
// conditions, call-outs and options within a group are not read.
std::size_t common_group(std::string_view p, std::size_t i) {
  const std::string_view rest = p.substr(i);
  for (const std::string_view known : {"(?:", "(?i:", "(?-i:", "(?=", "(?!", "(?<=", "(?<!", "(?>"})
    if (rest.starts_with(known)) return known.size();
  return rest.starts_with("(?") || rest.starts_with("(*") ? 0 : 1;
}

// The bytes of the character class at `i` that both libraries read alike; 0 otherwise: nested classes, intersections
// and names such as [:alpha:].
std::size_t common_class(std::string_view p, std::size_t i) {
  std::size_t at = i + 1;
  if (at < p.size() && p[at] == '^') ++at;
  if (at < p.size() && p[at] == ']') return 0;
  while (at < p.size() && p[at] != ']') {
    if (p[at] == '[' || p.substr(at).starts_with("&&")) return 0;
    const std::size_t n = p[at] == '\\' ? common_escape(p, at) : 1;
    if (n == 0) return 0;
    at += n;
  }
  return at < p.size() ? at + 1 - i : 0;
}

// Compiles an expression. Throws Error if it is not valid.
CodePointer compile(const std::string& source, const std::string& path) {
  const CompileContext context(pcre2_compile_context_create(nullptr));
  if (!context) throw std::bad_alloc();
  pcre2_set_newline(context.get(), PCRE2_NEWLINE_LF);
  pcre2_set_parens_nest_limit(context.get(), kMaxNesting);
  int error = 0;
  PCRE2_SIZE at = 0;
  constexpr std::uint32_t kOptions = PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C;
  CodePointer code(
      pcre2_compile(reinterpret_cast<PCRE2_SPTR>(source.data()), source.size(), kOptions, &error, &at, context.get()));
  require(code != nullptr, "tokenizer.json: ", path, " is not a regular expression: ", message_of(error), " at byte ",
          at);
  return code;
}

// The expression with call-outs, "(?C)", by which count_steps() follows a search: at the begin of each group and after
// each quantifier. Between two call-outs, a search tries each part of the expression a few times at most. Throws Error
// if the expression has a construct that Oniguruma and PCRE2 read differently.
std::string with_callouts(std::string_view p, const std::string& path) {
  constexpr std::string_view kQuantifiers = "*+?";
  std::string made;
  bool quantifier = false, uncounted = false;  // a quantifier precedes; an optional item without a call-out precedes
  for (std::size_t i = 0; i < p.size();) {
    std::size_t n = 1;
    if (p[i] == '\\') n = common_escape(p, i);
    if (p[i] == '(') n = common_group(p, i);
    if (p[i] == '[') n = common_class(p, i);
    const std::string_view rest = p.substr(i);
    if (rest.starts_with("}+") || rest.starts_with("}?") || rest.starts_with("{,")) n = 0;
    require(n > 0, "tokenizer.json: ", path, " has \"", p.substr(i, 8), "\" at byte ", i,
            ", which heed does not read; regular expressions may have classes, groups, look-around and quantifiers");
    made += rest.substr(0, n);
    i += n;
    const bool is_optional = rest[0] == '?' && !quantifier;  // not lazy: "a*?"
    quantifier = n == 1 && (kQuantifiers.find(rest[0]) != kQuantifiers.npos || rest[0] == '}');
    const bool ends = i == p.size() || kQuantifiers.find(p[i]) == kQuantifiers.npos;  // and is not followed by another
    if (quantifier && ends && is_optional && !uncounted) {
      uncounted = true;
    } else if ((quantifier && ends) || rest[0] == '(') {
      made += "(?C)";
      uncounted = false;
    }
  }
  return made;
}

// The steps of a search that are left, and the place of its last call-out.
struct Steps {
  std::uint64_t left = 0, per_callout = 1;
  std::size_t at = 0;
};

// Counts the steps since the last call-out: the characters that were passed, and those of the expression. Ends the
// search if none are left. PCRE2's own limit of steps does not count characters, and begins again at each character at
// which a match may begin.
int count_steps(pcre2_callout_block* block, void* data) {
  auto& steps = *static_cast<Steps*>(data);
  const std::size_t at = block->current_position;
  const std::uint64_t more = steps.per_callout + (at > steps.at ? at - steps.at : steps.at - at);
  steps.at = at;
  if (more > steps.left) return PCRE2_ERROR_CALLOUT;
  steps.left -= more;
  return 0;
}

}  // namespace

struct MatchState::Memory {
  std::unique_ptr<pcre2_match_data, Free<pcre2_match_data_free>> data{pcre2_match_data_create(1, nullptr)};
  std::unique_ptr<pcre2_match_context, Free<pcre2_match_context_free>> context{pcre2_match_context_create(nullptr)};
  std::unique_ptr<pcre2_jit_stack, Free<pcre2_jit_stack_free>> stack{
      pcre2_jit_stack_create(kMinStack, kMaxStack, nullptr)};
  Steps steps;
};

MatchState::MatchState() : memory_(std::make_unique<Memory>()) {
  if (!memory_->data || !memory_->context) throw std::bad_alloc();
  pcre2_set_match_limit(memory_->context.get(), ~std::uint32_t{0});  // count_steps() is stricter
  pcre2_set_callout(memory_->context.get(), count_steps, &memory_->steps);
  pcre2_set_heap_limit(memory_->context.get(), kMaxHeap);
  pcre2_jit_stack_assign(memory_->context.get(), nullptr, memory_->stack.get());
}
MatchState::~MatchState() = default;

void MatchState::allow(std::size_t bytes) {
  constexpr std::uint64_t kAlways = 1 << 20;
  memory_->steps.left = kAlways + kStepsPerByte * std::uint64_t{bytes};
}
void MatchState::spend(std::uint64_t steps) {
  std::uint64_t& left = memory_->steps.left;
  require(steps <= left, "tokenizer: the stages of the tokenizer take too many steps for this text: more than ",
          kStepsPerByte, " per byte");
  left -= steps;
}

struct Pattern::Code {
  CodePointer code;
  bool compiled = false;          // to machine code
  std::uint64_t per_callout = 1;  // steps between call-outs
  std::string path;
};

Pattern Pattern::literal(std::string text) {
  Pattern p;
  p.text_ = std::move(text);
  return p;
}

Pattern Pattern::expression(const std::string& source, const std::string& path) {
  require(!source.empty() && source.size() <= kMaxSource, "tokenizer.json: ", path, " has ", source.size(),
          " bytes; a regular expression must have 1 to ", kMaxSource);
  const std::string counted = with_callouts(source, path);
  compile(source, path);  // so that an Error has the place in the text of the file
  CodePointer code = compile(counted, path);
  auto made = std::make_shared<Code>();
  made->compiled = pcre2_jit_compile(code.get(), PCRE2_JIT_COMPLETE) == 0;  // else PCRE2 interprets it
  made->per_callout = 1 + source.size() / 64;
  made->code = std::move(code);
  made->path = path;
  Pattern p;
  p.code_ = std::move(made);
  return p;
}

Pattern Pattern::from_json(const JsonView& json) {
  json.only({"String", "Regex"});
  if (json.has("Regex")) {
    if (json.has("String")) json.refuse("must have one of String and Regex");
    const JsonView regex = json.at("Regex");
    return expression(regex.text(), regex.path());
  }
  const JsonView text = json.at("String");
  if (text.text().empty()) text.refuse("must not be empty");
  return literal(text.text());
}

std::optional<Range> Pattern::find(std::string_view text, std::size_t from, MatchState& state) const {
  if (!code_) {
    const std::size_t at = find_text(text, text_, from);
    return at == text.npos ? std::nullopt : std::optional(range(at, at + text_.size()));
  }
  MatchState::Memory& m = *state.memory_;
  m.steps.at = from;
  m.steps.per_callout = code_->per_callout;
  const auto subject = reinterpret_cast<PCRE2_SPTR>(text.data());
  const int found =
      code_->compiled ? pcre2_jit_match(code_->code.get(), subject, text.size(), from, 0, m.data.get(), m.context.get())
                      : pcre2_match(code_->code.get(), subject, text.size(), from, PCRE2_NO_UTF_CHECK, m.data.get(),
                                    m.context.get());
  if (found < 0 && found != PCRE2_ERROR_NOMATCH)  // not require(), which would make the message for each piece
    fail("encode: the pattern ", code_->path, " of the tokenizer fails at byte offset ", from, " of a text of ",
         text.size(), " bytes: ", found == PCRE2_ERROR_CALLOUT ? "it takes too many steps" : message_of(found));
  const PCRE2_SIZE* ends = pcre2_get_ovector_pointer(m.data.get());
  const std::size_t begin = found >= 0 ? ends[0] : text.size();
  state.spend((begin - from + 1) * code_->per_callout);  // each character at which no match begins
  return found >= 0 ? std::optional(range(begin, ends[1])) : std::nullopt;
}

}  // namespace heed::detail::tokenizer

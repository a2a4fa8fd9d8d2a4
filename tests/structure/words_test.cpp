// The pages: short lines and sentences, plain phrases, and links whose headings exist.
#include <doctest/doctest.h>

#include <cctype>
#include <cstring>
#include <map>
#include <set>
#include <sstream>

#include "tests/structure/sources.hpp"

using namespace heed::test;
namespace fs = std::filesystem;

namespace {

constexpr int kMaxColumns = 120, kMaxWords = 35;

struct Phrase {
  std::string words;  // lower case; a comma or full stop is a word
  std::string instead;
};

const std::vector<Phrase> kPhrases = {
    {"afresh", "again"},
    {"all but", "all except"},
    {"anew", "again"},
    {"as yet", "yet"},
    {"ask", "call, request"},
    {"asked", "called, requested"},
    {"asks", "calls, requests"},
    {"behind", "after"},
    {"beside", "with, next to, compared with"},
    {"borne", "accepted, allowed"},
    {"but for", "except"},
    {"for ever", "forever"},
    {"hang on", "depend on"},
    {"hangs on", "depends on"},
    {"hears", "receives"},
    {"is not so", "is different"},
    {"knows nothing", "does not use, does not depend on"},
    {"least possible", "minimum"},
    {"lie", "are"},
    {"lies", "is"},
    {"lives", "is stored"},
    {"of its own ,", "its own ..."},
    {"of its own .", "its own ..."},
    {"of your own ,", "your own ..."},
    {"of your own .", "your own ..."},
    {"so many", "this number of, at most"},
    {"stand", "are"},
    {"stands", "is"},
    {"stood", "was"},
    {"tell", "print, return, show"},
    {"tells", "prints, returns, shows"},
    {"that there are", "that exist"},
    {"that there is", "that exists"},
    {"the least", "the minimum, at least"},
    {"the like", "similar ones"},
    {"thereby", "so"},
    {"thereof", "its"},
    {"told", "printed, passed"},
    {"wants", "needs"},
    {"whence", "from which"},
    {"whereby", "by which"},
    {"wherein", "in which"},
    {"whoever", "name the subject"},
    {"whomever", "name the subject"},
    {"whose own", "its"},
};

// "5 ms a step": "a" between a word of the first list and one of the second must be "per".
const std::set<std::string> kMeasures = {"bits",  "bytes",  "gib",      "kib",    "mib",     "ms",    "numbers",
                                         "once",  "passes", "products", "rows",   "s",       "steps", "seconds",
                                         "times", "tokens", "twice",    "values", "batches", "µs"};
const std::set<std::string> kThings = {"batch",    "byte",   "chunk",     "core",  "cycle",  "day",   "element",
                                       "epoch",    "head",   "hour",      "key",   "line",   "layer", "machine",
                                       "minute",   "number", "parameter", "query", "rank",   "row",   "run",
                                       "sentence", "second", "shard",     "step",  "thread", "token", "word"};

struct Text {
  int line = 0;
  std::string text;
};

struct Page {
  std::string path;
  std::vector<Text> texts = {};  // paragraphs, items of lists, headings, cells of tables
  std::vector<Text> lines = {};  // outside of tables, code and HTML comments
  std::vector<std::string> headings = {};
};

bool is_item(const std::string& line) {
  const std::size_t at = line.find_first_not_of(' ');
  if (at == std::string::npos) return false;
  const std::size_t end = line.find_first_not_of("0123456789", at);
  return starts_with(line.substr(at), "- ") ||
         (end != at && end != std::string::npos && line.compare(end, 2, ". ") == 0);
}

std::vector<std::string> cells_of(const std::string& row) {
  std::vector<std::string> cells(1);
  for (std::size_t i = 1; i < row.size(); ++i) {
    if (row[i] == '|' && row[i - 1] != '\\')
      cells.emplace_back();
    else
      cells.back() += row[i];
  }
  return cells;
}

Page read_page(const std::string& path, std::istream& in) {
  Page page{path};
  bool code = false, comment = false, open = false;  // open: the next line may belong to the last text
  int number = 0;
  for (std::string line; std::getline(in, line);) {
    ++number;
    const bool fence = line.find("```") == line.find_first_not_of(' ') && line.find("```") != std::string::npos;
    const bool indented = starts_with(line, "    ") && !open;
    if (fence) code = !code;
    if (!code && starts_with(line, "<!--")) comment = true;
    if (code || fence || comment || indented || line.empty()) {
      open = false;
      if (line.find("-->") != std::string::npos) comment = false;
    } else if (starts_with(line, "|")) {
      open = false;
      for (const std::string& cell : cells_of(line))
        if (!cell.empty()) page.texts.push_back({number, cell});
    } else {
      page.lines.push_back({number, line});
      const bool heading = starts_with(line, "#");
      const std::string text = heading ? line.substr(line.find_first_not_of("# ")) : line;
      if (heading) page.headings.push_back(text);
      if (open && !heading && !is_item(line))
        page.texts.back().text += " " + text.substr(text.find_first_not_of(' '));
      else
        page.texts.push_back({number, text});
      open = !heading;
    }
  }
  return page;
}

Page page_of(const std::string& text) {
  std::istringstream in(text);
  return read_page("example", in);
}

// README.md, docs/*.md, and README.md of all folders.
const std::vector<Page>& pages() {
  static const std::vector<Page> list = [] {
    std::vector<std::string> paths = {"README.md"};
    for (const auto& entry : fs::directory_iterator(kRoot / "docs"))
      if (entry.path().extension() == ".md") paths.push_back("docs/" + entry.path().filename().string());
    for (const char* folder : {"core", "autograd", "layers", "optim", "data", "io", "plot", "mpi", "examples", "tests",
                               "benchmarks", "cmake"})
      for (const auto& entry : fs::recursive_directory_iterator(kRoot / folder))
        if (entry.path().filename() == "README.md") paths.push_back(fs::relative(entry.path(), kRoot).string());
    std::sort(paths.begin(), paths.end());
    std::vector<Page> found;
    for (const std::string& path : paths) {
      std::ifstream in(kRoot / path);
      found.push_back(read_page(path, in));
    }
    return found;
  }();
  return list;
}

// Without markup: a span of code is the word CODE, a link is its text.
std::string plain(const std::string& text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    const char next = i + 1 < text.size() ? text[i + 1] : ' ';
    if (c == '`') {
      const std::string quotes(text.find_first_not_of('`', i) - i, '`');
      const std::size_t end = text.find(quotes, i + quotes.size());
      if (end == std::string::npos) continue;
      out += "CODE";
      i = end + quotes.size() - 1;
    } else if (c == ']' && next == '(') {
      i = text.find(')', i);
      if (i == std::string::npos) break;
    } else if (c == '<' && (std::isalpha(static_cast<unsigned char>(next)) || next == '/')) {
      i = text.find('>', i);
      if (i == std::string::npos) break;
    } else if (c != '[' && c != '*') {
      out += c;
    }
  }
  return out;
}

// They end with . ! or ?, before a capital letter, a digit or heed.
std::vector<std::string> sentences_of(const std::string& text) {
  std::vector<std::string> found(1);
  for (std::size_t i = 0; i < text.size(); ++i) {
    found.back() += text[i];
    if (std::strchr(".!?", text[i]) == nullptr) continue;
    std::size_t next = i + 1;
    while (next < text.size() && std::strchr(")\"", text[next]) != nullptr) found.back() += text[next++];
    i = next - 1;
    const std::string& before = found.back();
    if (next + 1 >= text.size() || text[next] != ' ' || ends_with(before, " vs.")) continue;
    const auto c = static_cast<unsigned char>(text[next + 1]);
    if (ends_with(before, " al.") && (c == '(' || std::isdigit(c))) continue;
    if (std::isupper(c) || std::isdigit(c) || c == '(' || c == '"' || text.compare(next + 1, 4, "heed") == 0) {
      found.emplace_back();
      i = next;  // the space
    }
  }
  return found;
}

// In lower case; each mark of punctuation is a word, too.
std::vector<std::string> words_of(const std::string& sentence) {
  std::vector<std::string> words;
  bool inside = false;
  for (const char c : sentence) {
    const auto u = static_cast<unsigned char>(c);
    const bool letter = std::isalnum(u) || u >= 0x80 || c == '\'' || c == '-' || c == '_';
    if (letter && inside)
      words.back() += static_cast<char>(std::tolower(u));
    else if (c != ' ')
      words.emplace_back(1, static_cast<char>(std::tolower(u)));
    inside = letter;
  }
  return words;
}

int count_words(const std::string& sentence) {
  std::istringstream in(sentence);
  int count = 0;
  for (std::string word; in >> word;)
    count += std::ranges::any_of(word, [](unsigned char c) { return std::isalnum(c); });
  return count;
}

// What to write in place of a banned phrase, as "'anew': again"; empty where there is none.
std::string banned_in(const std::string& sentence) {
  const std::vector<std::string> words = words_of(sentence);
  if (words.size() > 1 && starts_with(sentence, "Of ") && words[1] != "course")
    return "'Of' as an opening: begin with the subject";
  std::string joined = " ";
  for (const std::string& word : words) joined += word + " ";
  joined += ". ";
  for (const Phrase& phrase : kPhrases)
    if (joined.find(" " + phrase.words + " ") != std::string::npos) return "'" + phrase.words + "': " + phrase.instead;
  for (std::size_t i = 1; i + 1 < words.size(); ++i)
    if ((words[i] == "a" || words[i] == "an") && kMeasures.count(words[i - 1]) == 1 && kThings.count(words[i + 1]) == 1)
      return "'" + words[i - 1] + " " + words[i] + " " + words[i + 1] + "': per";
  return {};
}

// The anchor that GitHub gives a heading: "A step's time" has #a-steps-time.
std::string anchor_of(const std::string& heading) {
  std::string anchor;
  for (const char c : heading) {
    const auto u = static_cast<unsigned char>(c);
    if (std::isalnum(u) || u >= 0x80 || c == '-' || c == '_') anchor += static_cast<char>(std::tolower(u));
    if (c == ' ') anchor += '-';
  }
  return anchor;
}

// The targets of links: file.md#heading.
std::vector<std::string> links_of(const std::string& text) {
  std::vector<std::string> found;
  for (std::size_t at = text.find("]("); at != std::string::npos; at = text.find("](", at + 1))
    found.push_back(text.substr(at + 2, text.find(')', at) - at - 2));
  return found;
}

}  // namespace

TEST_CASE("words: this test finds what it must") {
  CHECK(banned_in("The packed form hangs on the shape.") == "'hangs on': depends on");
  CHECK(banned_in("A step takes 5 ms a step.") == "'ms a step': per");
  CHECK(banned_in("Of work: two products.") != "");
  CHECK(banned_in("This is not at all, but almost, what we need.").empty());  // not "all but"
  CHECK(banned_in("Of course, 5 ms per step.").empty());
  CHECK(banned_in("A layer of your own") == "'of your own .': your own ...");
  CHECK(banned_in("The bits of its own bucket.").empty());
  const std::string two = "**Bold.** The `a. B` of [this page](x.md#y) (Lin et al. 2025) ends. heed starts.";
  CHECK(sentences_of(plain(two)) ==
        std::vector<std::string>{"Bold.", "The CODE of this page (Lin et al. 2025) ends.", "heed starts."});
  CHECK(count_words("a - b [4, 5]") == 4);
  CHECK(anchor_of("`run()`: A step's time") == "run-a-steps-time");
  const Page page =
      page_of("# A b\ntext\nmore\n- item\n  more\n\n    code\n```sh\ncode\n```\n<!-- x\ny -->\n| a | b |\n");
  std::vector<std::string> texts;
  for (const Text& text : page.texts) texts.push_back(text.text);
  CHECK(texts == std::vector<std::string>{"A b", "text more", "- item more", " a ", " b "});
  CHECK(page.lines.size() == 5);
  CHECK(links_of("[a](b.md#c) and [d](#e)") == std::vector<std::string>{"b.md#c", "#e"});
}

TEST_CASE("words: lines of pages have at most 120 columns outside of tables, code and comments") {
  int lines = 0;
  for (const Page& page : pages()) {
    for (const Text& line : page.lines) {
      ++lines;
      const auto columns = std::ranges::count_if(line.text, [](char c) { return (c & 0xc0) != 0x80; });  // of UTF-8
      INFO(page.path, ":", line.line, " has ", columns, " columns");
      CHECK(columns <= kMaxColumns);
    }
  }
  CHECK(lines > 1000);
}

TEST_CASE("words: sentences of pages have at most 35 words and no banned phrase") {
  int sentences = 0;
  for (const Page& page : pages()) {
    for (const Text& text : page.texts) {
      for (const std::string& sentence : sentences_of(plain(text.text))) {
        ++sentences;
        const int words = count_words(sentence);
        const std::string banned = banned_in(sentence);
        INFO(page.path, ":", text.line, ": ", words, " words: ", sentence);
        CHECK(words <= kMaxWords);
        CHECK(banned == "");
      }
    }
  }
  CHECK(sentences > 2000);
}

TEST_CASE("words: links to headings of pages lead to headings") {
  std::map<std::string, std::set<std::string>> anchors;
  for (const Page& page : pages())
    for (const std::string& heading : page.headings) anchors[page.path].insert(anchor_of(heading));
  int links = 0;
  for (const Page& page : pages()) {
    for (const Text& text : page.texts) {
      for (const std::string& link : links_of(text.text)) {
        const std::size_t hash = link.find('#');
        if (hash == std::string::npos || starts_with(link, "https://")) continue;
        ++links;
        const std::string file = link.substr(0, hash);
        const fs::path target = file.empty() ? fs::path(page.path) : fs::path(page.path).parent_path() / file;
        INFO(page.path, ":", text.line, " links to ", link);
        CHECK(anchors[target.lexically_normal().string()].count(link.substr(hash + 1)) == 1);
      }
    }
  }
  CHECK(links > 20);
}

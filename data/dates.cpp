// Random sentences with dates, and the dates in ISO 8601.
#include <algorithm>
#include <chrono>
#include <heed/core/check.hpp>
#include <heed/data/tasks.hpp>
#include <set>

namespace heed {
namespace {

constexpr std::uint64_t kTraining = std::uint64_t{0xDA7E0} << 44, kHeldOut = std::uint64_t{0xDA7E1} << 44;

using Words = std::vector<std::string>;

const Words kMonths = {"January", "February", "March",     "April",   "May",      "June",
                       "July",    "August",   "September", "October", "November", "December"};
const Words kWeekdays = {"Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"};
const Words kOrdinals = {"first",     "second",    "third",       "fourth",     "fifth",     "sixth",      "seventh",
                         "eighth",    "ninth",     "tenth",       "eleventh",   "twelfth",   "thirteenth", "fourteenth",
                         "fifteenth", "sixteenth", "seventeenth", "eighteenth", "nineteenth"};
const Words kNumbers = {"",         "one",     "two",     "three",     "four",     "five",    "six",
                        "seven",    "eight",   "nine",    "ten",       "eleven",   "twelve",  "thirteen",
                        "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen"};
const Words kTens = {"", "", "twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"};

// {d} is the date, {n} an unrelated number.
const Words kSentences = {"see you on {d} at the lake",
                          "see you on {d}",
                          "{d}",
                          "we met on {d}, all {n} of us",
                          "the bill of {d} names {n} guests",
                          "on {d} it rained for {n} hours",
                          "{n} ships left on {d}",
                          "{d} was a warm day",
                          "please come to room {n} on {d}",
                          "the letter is of {d}",
                          "nobody knew what {d} would bring",
                          "from {d} on there will be {n} trains a day"};

std::string two_digits(Index n) { return (n < 10 ? "0" : "") + std::to_string(n); }

std::string in_words(Index n) {  // 0 to 99; 0: ""
  if (n < 20) return kNumbers[static_cast<std::size_t>(n)];
  const std::string tens = kTens[static_cast<std::size_t>(n / 10)];
  return n % 10 == 0 ? tens : tens + "-" + kNumbers[static_cast<std::size_t>(n % 10)];
}

std::string ordinal(Index n) {  // 1 to 31
  if (n < 20) return kOrdinals[static_cast<std::size_t>(n - 1)];
  if (n % 10 == 0) return n == 20 ? "twentieth" : "thirtieth";
  return kTens[static_cast<std::size_t>(n / 10)] + "-" + kOrdinals[static_cast<std::size_t>(n % 10 - 1)];
}

std::string with_suffix(Index n) {  // 1st, 2nd, 3rd, 4th
  const Index last = n / 10 == 1 ? 0 : n % 10;
  return std::to_string(n) + (last == 1 ? "st" : last == 2 ? "nd" : last == 3 ? "rd" : "th");
}

std::string year_in_words(Index y) {  // nineteen ninety-nine, two thousand and three, nineteen hundred
  if (y / 100 % 10 == 0) {
    const std::string thousand = in_words(y / 1000) + " thousand";
    return y % 100 == 0 ? thousand : thousand + " and " + in_words(y % 100);
  }
  const std::string hundreds = in_words(y / 100);
  if (y % 100 == 0) return hundreds + " hundred";
  return hundreds + (y % 100 < 10 ? " oh " : " ") + in_words(y % 100);
}

const std::string& one_of(const Words& words, Rng& rng) {
  return words[static_cast<std::size_t>(rng.integer(static_cast<Index>(words.size())))];
}

// A sentence that is composed piece by piece.
struct SentenceText : DateSentence {
  SentenceText& append(const std::string& words) {
    source += words;
    return *this;
  }
  SentenceText& append(Field& field, const std::string& words) {
    field.begin = static_cast<Index>(source.size());
    field.end = field.begin + static_cast<Index>(words.size());
    return append(words);
  }
};

struct Day {
  Index year, month, day;
  std::string weekday;
};

std::string numeral(Index n, Rng& rng) { return rng.integer(2) == 0 ? std::to_string(n) : two_digits(n); }

std::string year_of(const Day& d, Rng& rng, bool in_letters) {
  const Index form = rng.integer(in_letters ? 4 : 3);
  if (form == 3) return year_in_words(d.year);
  const bool short_form = form == 2 && d.year >= 1950 && d.year <= 2049;
  return short_form ? (in_letters ? "'" : "") + two_digits(d.year % 100) : std::to_string(d.year);
}

std::string day_of(const Day& d, Rng& rng) {
  switch (rng.integer(3)) {
    case 0: return std::to_string(d.day);
    case 1: return with_suffix(d.day);
    default: return ordinal(d.day);
  }
}

std::string month_of(const Day& d, Rng& rng) {
  const std::string& name = kMonths[static_cast<std::size_t>(d.month - 1)];
  return rng.integer(2) == 0 || name.size() <= 4 ? name : name.substr(0, 3) + ".";
}

// Appends the date in a random notation. Returns `t`.
SentenceText& append_date(SentenceText& t, const Day& d, Rng& rng) {
  switch (rng.integer(6)) {
    case 0:
      return t.append(t.year, std::to_string(d.year))
          .append("/")
          .append(t.month, two_digits(d.month))
          .append("/")
          .append(t.day, two_digits(d.day));
    case 1: {
      const std::string day = numeral(d.day, rng), month = numeral(d.month, rng), year = year_of(d, rng, false);
      return t.append(t.day, day).append(".").append(t.month, month).append(".").append(t.year, year);
    }
    case 2: {
      const std::string month = numeral(d.month, rng), day = numeral(d.day, rng), year = year_of(d, rng, false);
      return t.append(t.month, month).append("/").append(t.day, day).append("/").append(t.year, year);
    }
    default: break;
  }
  if (rng.integer(3) == 0) t.append(d.weekday + ", ");
  const bool comma = rng.integer(2) == 0;
  switch (rng.integer(3)) {
    case 0: t.append("the ").append(t.day, day_of(d, rng)).append(" of ").append(t.month, month_of(d, rng)); break;
    case 1: t.append(t.day, day_of(d, rng)).append(" ").append(t.month, month_of(d, rng)); break;
    default: t.append(t.month, month_of(d, rng)).append(" ").append(t.day, day_of(d, rng)); break;
  }
  return t.append(comma ? ", " : " ").append(t.year, year_of(d, rng, true));
}

// Whether a day is held out: pseudo-random, and the same in every sentence.
bool is_held_out(const std::chrono::sys_days& day) {
  return Rng(static_cast<std::uint64_t>(day.time_since_epoch().count() + (Index{1} << 30)), kHeldOut).integer(10) == 0;
}

}  // namespace

DateSentences::DateSentences(const DateOptions& options) : options_(options) {
  require(options.first_year >= 1000 && options.first_year <= options.last_year && options.last_year <= 9999,
          "dates: the years are ", options.first_year, " to ", options.last_year,
          "; they must be within 1000 to 9999, and the first not after the last");
}

DateSentence DateSentences::sentence(std::uint64_t seed, std::uint64_t index) const {
  using namespace std::chrono;
  Rng rng(seed, (options_.held_out ? kHeldOut : kTraining) + index);
  const sys_days first = year{static_cast<int>(options_.first_year)} / January / 1,
                 last = year{static_cast<int>(options_.last_year)} / December / 31;
  sys_days at;
  do at = first + days{rng.integer((last - first).count() + 1)};
  while (is_held_out(at) != options_.held_out);
  const year_month_day date(at);
  const Day d{static_cast<int>(date.year()), static_cast<Index>(static_cast<unsigned>(date.month())),
              static_cast<Index>(static_cast<unsigned>(date.day())), kWeekdays[weekday(at).c_encoding()]};

  std::string frame = one_of(kSentences, rng);
  if (const std::size_t n = frame.find("{n}"); n != std::string::npos)
    frame.replace(n, 3, rng.integer(2) == 0 ? in_words(2 + rng.integer(98)) : std::to_string(2 + rng.integer(98)));
  const std::size_t place = frame.find("{d}");
  SentenceText text;
  text.append(frame.substr(0, place));
  append_date(text, d, rng).append(frame.substr(place + 3));
  text.target = std::to_string(d.year) + "-" + two_digits(d.month) + "-" + two_digits(d.day);
  return text;
}

std::vector<TextPair> DateSentences::pairs(std::uint64_t seed, Index count) const {
  std::vector<TextPair> all;
  for (Index i = 0; i < count; ++i) {
    DateSentence s = sentence(seed, static_cast<std::uint64_t>(i));
    all.push_back({std::move(s.source), std::move(s.target)});
  }
  return all;
}

const std::string& DateSentences::characters() {
  static const std::string all = [] {
    std::string text = "0123456789-/.,' stndrhoa hundred thousand and";
    for (const Words* words : {&kMonths, &kWeekdays, &kOrdinals, &kNumbers, &kTens, &kSentences})
      for (const std::string& word : *words) text += word;
    std::set<char> each(text.begin(), text.end());
    each.erase('{'), each.erase('}');
    return std::string(each.begin(), each.end());
  }();
  return all;
}

}  // namespace heed

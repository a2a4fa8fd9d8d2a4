// A strict reader of comma-separated values, whose errors name file, line and column.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <heed/core/check.hpp>
#include <heed/data/detail/text_reader.hpp>
#include <heed/data/samples.hpp>
#include <set>

namespace heed {
namespace {

// Reads the text once, field by field.
class CsvReader {
 public:
  CsvReader(std::string_view text, std::string file, char separator)
      : text_(text), file_(std::move(file)), separator_(separator) {}

  Index line() const { return line_; }
  bool ended() const { return at_ == text_.size(); }
  // Whether only blank lines remain.
  bool only_blank() const { return text_.find_first_not_of("\r\n", at_) == text_.npos; }

  // The fields of the next row, which may span several lines.
  std::vector<std::string> row() {
    std::vector<std::string> fields;
    do {
      fields.push_back(field(fields.size() + 1));
    } while (taken(separator_));
    taken('\r');
    require(ended() || taken('\n'), "csv: ", file_, ", line ", line_, ", column ", fields.size(), " has ",
            excerpt(text_.substr(at_, 1)), " after its closing quote; a separator or the end of the line must follow");
    ++line_;
    return fields;
  }

 private:
  std::string_view text_;
  std::string file_;
  char separator_;
  std::size_t at_ = 0;
  Index line_ = 1;

  bool taken(char c) {
    const bool is_next = !ended() && text_[at_] == c;
    at_ += is_next ? 1 : 0;
    return is_next;
  }

  std::string field(std::size_t column) {
    if (taken('"')) return quoted(column);
    const std::size_t begin = at_;
    while (!ended() && text_[at_] != separator_ && text_[at_] != '\n') ++at_;
    std::size_t end = at_;
    if ((ended() || text_[at_] == '\n') && end > begin && text_[end - 1] == '\r') --end;
    const std::string_view field = text_.substr(begin, end - begin);
    require(field.find('"') == field.npos, "csv: ", file_, ", line ", line_, ", column ", column, " is ",
            excerpt(field), "; a field that contains quotes must be quoted, with each inner quote doubled");
    return std::string(field);
  }

  std::string quoted(std::size_t column) {
    const Index begin = line_;
    std::string field;
    while (true) {
      require(!ended(), "csv: ", file_, ", line ", begin, ", column ", column,
              " begins with a quote that is not closed before the end of the file");
      const char c = text_[at_++];
      if (c == '"' && !taken('"')) return field;
      if (c == '\n') ++line_;
      field += c;
    }
  }
};

// Names for messages, cut to about 200 characters.
std::string listed(const std::vector<std::string>& names) {
  std::string all;
  for (const std::string& name : names) {
    if (!all.empty()) all += ", ";
    if (all.size() > 200) return all + "...";
    all += excerpt(name);
  }
  return all;
}

}  // namespace

CsvTable CsvTable::read(const std::filesystem::path& file, const CsvOptions& options) {
  const std::string text = detail::read_rows(file, options.reading);
  CsvTable table;
  table.file_ = shown_file(file);
  CsvReader reader(text, table.file_, options.separator);
  table.names_ = options.names.empty() ? reader.row() : options.names;
  const std::vector<std::string>& names = table.names_;
  for (auto name = names.begin(); name != names.end(); ++name)
    require(std::find(names.begin(), name, *name) == name, "csv: two columns of ", table.file_, " are named ",
            excerpt(*name), "; names must differ");
  const auto invalid = [](const std::string& field) { return find_invalid_utf8(field).has_value(); };
  require(std::ranges::none_of(names, invalid), "csv: the column names of ", table.file_, " must be UTF-8");
  while (!reader.only_blank()) {
    const Index line = reader.line();
    std::vector<std::string> fields = reader.row();
    require(fields.size() == names.size(), "csv: ", table.file_, ", line ", line, " has ", fields.size(),
            " fields; it must have ", names.size(), ", one per column");
    if (std::ranges::any_of(fields, invalid)) {  // only with InvalidUtf8::skip
      TextReport* report = options.reading.report;
      if (report != nullptr) report->count(report->skipped, "line " + std::to_string(line) + " of " + table.file_);
      continue;
    }
    table.lines_.push_back(line);
    std::move(fields.begin(), fields.end(), std::back_inserter(table.fields_));
  }
  require(table.rows() > 0, "csv: ", table.file_, " has no rows; it must have one or more",
          options.names.empty() ? " below the column names" : "");
  return table;
}

std::size_t CsvTable::place_of(std::string_view column) const {
  const auto found = std::find(names_.begin(), names_.end(), column);
  require(found != names_.end(), "csv: ", file_, " has no column ", excerpt(column), "; it has ", listed(names_));
  return static_cast<std::size_t>(found - names_.begin());
}

std::string CsvTable::where(std::size_t row, std::size_t column) const {
  return file_ + ", line " + std::to_string(lines_[row]) + ", column " + excerpt(names_[column]);
}

const std::string& CsvTable::field(Index row, std::string_view column) const {
  require(row >= 0 && row < rows(), "csv: row ", row, " of ", file_, " is out of range; there are ", rows());
  return at(static_cast<std::size_t>(row), place_of(column));
}

Tensor CsvTable::numbers(const std::vector<std::string>& columns) const {
  require(!columns.empty(), "csv: the list of columns of ", file_, " is empty; it must name one or more");
  std::vector<std::size_t> places;
  for (const std::string& column : columns) places.push_back(place_of(column));
  std::vector<float> values;
  for (std::size_t row = 0; row < lines_.size(); ++row) {
    for (const std::size_t place : places) {
      const std::string& field = at(row, place);
      double value = 0;
      const auto [end, error] = std::from_chars(field.data(), field.data() + field.size(), value);
      require(error == std::errc() && end == field.data() + field.size() && std::isfinite(static_cast<float>(value)),
              "csv: ", where(row, place), " is «", excerpt(field), "»; it must be a finite number of float32");
      values.push_back(static_cast<float>(value));
    }
  }
  return Tensor::from(values, {rows(), static_cast<Index>(columns.size())});
}

std::vector<std::string> CsvTable::class_names(std::string_view column) const {
  const std::size_t place = place_of(column);
  std::set<std::string> names;
  for (std::size_t row = 0; row < lines_.size(); ++row) names.insert(at(row, place));
  names.erase("");
  return {names.begin(), names.end()};
}

Tensor CsvTable::classes(std::string_view column, const std::vector<std::string>& names) const {
  const std::size_t place = place_of(column);
  std::vector<Index> values;
  for (std::size_t row = 0; row < lines_.size(); ++row) {
    const auto found = std::find(names.begin(), names.end(), at(row, place));
    require(found != names.end(), "csv: ", where(row, place), " is «", excerpt(at(row, place)), "»; it must be one of ",
            listed(names));
    values.push_back(found - names.begin());
  }
  return Tensor::from(values);
}

}  // namespace heed

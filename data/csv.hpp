// Tables of comma-separated values (RFC 4180): columns of numbers and of classes, as tensors.
//
//   const CsvTable table = CsvTable::read("iris.csv");
//   const TensorDataset samples({{"inputs", table.numbers({"sepal length", "sepal width"})},  // float32 [rows, 2]
//                                {"targets", table.classes("species")}});                     // int32 [rows]
//   table.class_names("species");  // setosa, versicolor, virginica: what 0, 1 and 2 mean
#pragma once
#include <filesystem>
#include <heed/core/tensor.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace heed {

struct CsvOptions {
  char separator = ',';
  // The names of the columns where the first line does not tell them.
  std::vector<std::string> names = {};
};

// A table in memory. The first line names the columns. A field in quotes may hold separators, line feeds and doubled
// quotes; spaces belong to fields. Lines end with a line feed, before which a carriage return is dropped.
class CsvTable {
 public:
  // Error, with file, line and column: no such file, not UTF-8, no rows, a line with more or fewer fields than there
  // are columns, two columns of one name, a quote that is not closed or within a field that has none around it.
  static CsvTable read(const std::filesystem::path& file, const CsvOptions& options = {});

  Index rows() const { return static_cast<Index>(lines_.size()); }
  const std::vector<std::string>& names() const { return names_; }
  // The field of a row, counted from 0. Error for a row or a column that is not there.
  const std::string& field(Index row, std::string_view column) const;

  // float32 [rows, columns], and [rows] of a single one. Error for a column that is not there, and, with file, line and
  // column, for a field that is no finite number such as -1.5e3, or that float32 cannot hold.
  Tensor numbers(const std::vector<std::string>& columns) const;
  Tensor column(const std::string& name) const { return numbers({name}).select(1, 0); }

  // int32 [rows]: the place of each field among the names of the classes, those of the column unless others are given
  // (of the table that a model was trained on). Error for a field that is none of them, or empty.
  Tensor classes(std::string_view column) const { return classes(column, class_names(column)); }
  Tensor classes(std::string_view column, const std::vector<std::string>& names) const;
  std::vector<std::string> class_names(std::string_view column) const;  // sorted, each once

 private:
  std::string file_;
  std::vector<std::string> names_;
  std::vector<std::string> fields_;  // row by row
  std::vector<Index> lines_;         // of each row, in the file

  std::size_t place_of(std::string_view column) const;
  const std::string& at(std::size_t row, std::size_t column) const { return fields_[row * names_.size() + column]; }
  std::string where(std::size_t row, std::size_t column) const;
};

}  // namespace heed

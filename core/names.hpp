// Names of the rows of a table: lists of names, and the row with a name. `name_of` returns the name of a row; without
// it, the rows are names. Internal.
#pragma once
#include <functional>
#include <heed/core/check.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace heed::detail {

// The names with text between them: "a, b, c".
template <class Table, class NameOf = std::identity>
std::string joined(const Table& table, NameOf name_of = {}, std::string_view between = ", ") {
  std::string all;
  for (const auto& row : table) (all += all.empty() ? "" : between) += std::invoke(name_of, row);
  return all;
}

template <class Table, class NameOf>
std::vector<std::string> names_of(const Table& table, NameOf name_of) {
  std::vector<std::string> all;
  for (const auto& row : table) all.emplace_back(std::invoke(name_of, row));
  return all;
}

// Throws Error if there is no such row: "WHAT is 'NAME'; it must be one of a, b, c".
template <class Table, class NameOf = std::identity>
const auto& row_named(std::string_view name, const char* what, const Table& table, NameOf name_of = {}) {
  for (const auto& row : table)
    if (std::string_view(std::invoke(name_of, row)) == name) return row;
  fail(what, " is '", name, "'; it must be one of ", joined(table, name_of));
}

}  // namespace heed::detail

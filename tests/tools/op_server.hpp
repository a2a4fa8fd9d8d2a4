// The ops of op_server by name, and readers of their arguments.
#pragma once
#include <functional>
#include <heed/heed.hpp>
#include <map>
#include <nlohmann/json.hpp>

namespace op_server {

using nlohmann::json;
using List = std::vector<heed::Tensor>;
using Op = std::function<List(const List& inputs, const json& args)>;

// A message that names an unknown op or argument. It is not an Error of heed.
class Misuse : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// All ops by name.
const std::map<std::string, Op>& ops();

// A number; text for values that JSON cannot write, such as infinity.
double number(const json& j);
double number(const json& args, const char* name, double otherwise);  // if it is missing, `otherwise`
bool flag(const json& args, const char* name);                        // false if it is missing
heed::Shape sizes(const json& j);
heed::DType dtype_named(const std::string& name);  // throws Misuse if unknown

}  // namespace op_server

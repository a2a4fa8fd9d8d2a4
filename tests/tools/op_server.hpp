// What op_server knows of heed: ops by name, with what a message gives them.
#pragma once
#include <functional>
#include <heed/heed.hpp>
#include <map>
#include <nlohmann/json.hpp>

namespace op_server {

using nlohmann::json;
using List = std::vector<heed::Tensor>;
using Op = std::function<List(const List& inputs, const json& args)>;

// A message that asks for what is not there: no Error of heed's.
class Misuse : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

const std::map<std::string, Op>& ops();

// Numbers that JSON has no words for come as text.
double number(const json& j);
double number(const json& args, const char* name, double otherwise);
bool flag(const json& args, const char* name);
heed::Shape sizes(const json& j);
heed::DType dtype_named(const std::string& name);

}  // namespace op_server

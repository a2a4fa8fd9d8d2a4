// A graph of ONNX operators, and the file that holds it. Internal; `export_onnx` is in io/onnx.hpp.
//
// Source: onnx.proto of https://github.com/onnx/onnx, and its docs/IR.md and docs/Operators.md. The operators are those
// of opset 17, which ONNX 1.12 and onnxruntime 1.12 and later run.
#pragma once
#include <cstddef>
#include <filesystem>
#include <heed/core/tensor.hpp>
#include <heed/io/protobuf.hpp>
#include <map>
#include <string>
#include <tuple>
#include <variant>
#include <vector>

namespace heed::detail {

// Types of values, with the numbers of TensorProto.DataType.
enum class OnnxType { float32 = 1, int64 = 7, boolean = 9 };

// An attribute of a node: INT, FLOAT or INTS.
struct OnnxAttribute {
  std::string name = {};
  std::variant<Index, double, std::vector<Index>> value = {};
};

// A size, or the name of a size that is chosen when the graph runs.
using OnnxDim = std::variant<Index, std::string>;

// The maximum size of a protobuf message. Larger models need values in other files, which heed does not write.
inline constexpr std::size_t kMaxOnnxBytes = 2147483647;

// A graph that is built node by node. Values have names; each function that adds a value returns its name. Names depend
// on the order of the calls only, so equal calls give equal files.
class OnnxGraph {
 public:
  // Adds a node with one result. Inputs must be names of values.
  std::string add(const std::string& op, const std::vector<std::string>& inputs,
                  const std::vector<OnnxAttribute>& attributes = {});
  // Adds a node that splits the last axis of x into parts of these sizes.
  std::vector<std::string> split(const std::string& x, const std::vector<Index>& sizes);

  // A tensor with the values of a model, stored as float32, of any floating dtype. The name must be new. The graph
  // keeps a handle; save() reads the values.
  std::string weight(const std::string& name, const Tensor& values);
  // Constants. Equal constants are stored once.
  std::string number(double value);                        // float32 []
  std::string integer(Index value);                        // int64 []
  std::string integers(const std::vector<Index>& values);  // int64 [n]

  // Adds an input of the graph; the name is that of the value.
  std::string input(const std::string& name, OnnxType type, const std::vector<OnnxDim>& dims);
  // Makes a float32 value an output of the graph, with this name.
  void output(const std::string& name, const std::string& value, const std::vector<OnnxDim>& dims);

  // Writes the graph as a model, as detail::NewFile does. `metadata` are texts by key. Throws Error, which begins with
  // `op`, if the file would have more than kMaxOnnxBytes, if a weight overflows float32, and if the file cannot be
  // written. Names and metadata must be UTF-8.
  void save(const char* op, const std::filesystem::path& file,
            const std::map<std::string, std::string>& metadata) const;

 private:
  struct Initializer {
    std::string name = {};
    ProtobufMessage before = {};  // its field of GraphProto up to the values
    std::string raw = {};         // the values of a constant
    Tensor values = {};           // those of a weight
  };

  std::string name_of_node(const std::string& op);
  void add_node(const std::string& op, const std::string& name, const std::vector<std::string>& inputs,
                const std::vector<std::string>& outputs, const std::vector<OnnxAttribute>& attributes);
  std::string constant(OnnxType type, const std::vector<Index>& dims, const std::string& raw);
  void add_initializer(OnnxType type, const std::vector<Index>& dims, Initializer x);

  ProtobufMessage nodes_, inputs_, outputs_;  // fields of GraphProto
  std::size_t node_count_ = 0;
  std::vector<Initializer> initializers_;
  std::size_t initializer_bytes_ = 0;                                                       // in the file
  std::map<std::tuple<OnnxType, std::vector<Index>, std::string>, std::string> constants_;  // names by dims and bytes
};

}  // namespace heed::detail

// Graphs of ONNX operators: nodes, constants and the file.
#include <cstdint>
#include <cstring>
#include <heed/core/check.hpp>
#include <heed/data/detail/disk.hpp>
#include <heed/io/onnx_graph.hpp>
#include <heed/io/stored_tensor.hpp>

namespace heed::detail {
namespace {

constexpr Index kIrVersion = 8;  // of onnx.proto, for opset 17
constexpr Index kOpset = 17;

ProtobufMessage attribute_message(const OnnxAttribute& attribute) {
  enum { kFloat = 1, kInt = 2, kInts = 7 };  // AttributeProto.AttributeType
  constexpr int kType = 20;
  ProtobufMessage m;
  m.text(1, attribute.name);
  if (const double* real = std::get_if<double>(&attribute.value)) {
    m.real(2, static_cast<float>(*real));
    m.integer(kType, kFloat);
  } else if (const Index* whole = std::get_if<Index>(&attribute.value)) {
    m.integer(3, *whole);
    m.integer(kType, kInt);
  } else {
    for (Index n : std::get<std::vector<Index>>(attribute.value)) m.integer(8, n);
    m.integer(kType, kInts);
  }
  return m;
}

// ValueInfoProto, with a TypeProto and a TensorShapeProto.
ProtobufMessage value_message(const std::string& name, OnnxType type, const std::vector<OnnxDim>& dims) {
  ProtobufMessage shape, tensor, value_type, value;
  for (const OnnxDim& dim : dims) {
    ProtobufMessage m;
    if (const Index* size = std::get_if<Index>(&dim))
      m.integer(1, *size);
    else
      m.text(2, std::get<std::string>(dim));
    shape.message(1, m);
  }
  tensor.integer(1, static_cast<Index>(type));
  tensor.message(2, shape);
  value_type.message(1, tensor);
  value.text(1, name);
  value.message(2, value_type);
  return value;
}

std::vector<std::byte> weight_bytes(const char* op, const std::string& name, const Tensor& values) {
  try {
    return store(values, StoredType::f32);
  } catch (const Error& e) {
    fail(op, ": ", name, " cannot be written as float32: ", e.what());
  }
}

template <class T>
std::string raw_bytes(const std::vector<T>& values) {
  std::string raw(values.size() * sizeof(T), '\0');
  std::memcpy(raw.data(), values.data(), raw.size());
  return raw;
}

}  // namespace

std::string OnnxGraph::name_of_node(const std::string& op) { return op + "_" + std::to_string(node_count_++); }

void OnnxGraph::add_node(const std::string& op, const std::string& name, const std::vector<std::string>& inputs,
                         const std::vector<std::string>& outputs, const std::vector<OnnxAttribute>& attributes) {
  ProtobufMessage node;
  for (const std::string& input : inputs) node.text(1, input);
  for (const std::string& output : outputs) node.text(2, output);
  node.text(3, name);
  node.text(4, op);
  for (const OnnxAttribute& attribute : attributes) node.message(5, attribute_message(attribute));
  nodes_.message(1, node);
}

std::string OnnxGraph::add(const std::string& op, const std::vector<std::string>& inputs,
                           const std::vector<OnnxAttribute>& attributes) {
  const std::string name = name_of_node(op);
  add_node(op, name, inputs, {name}, attributes);
  return name;
}

std::vector<std::string> OnnxGraph::split(const std::string& x, const std::vector<Index>& sizes) {
  const std::string name = name_of_node("Split");
  std::vector<std::string> parts;
  for (std::size_t i = 0; i < sizes.size(); ++i) parts.push_back(name + "." + std::to_string(i));
  add_node("Split", name, {x, integers(sizes)}, parts, {{"axis", -1}});
  return parts;
}

void OnnxGraph::add_initializer(OnnxType type, const std::vector<Index>& dims, Initializer x) {
  const std::size_t bytes = x.values.defined() ? stored_bytes(StoredType::f32, x.values.shape()).value() : x.raw.size();
  ProtobufMessage tensor;
  for (Index size : dims) tensor.integer(1, size);
  tensor.integer(2, static_cast<Index>(type));
  tensor.text(8, x.name);
  tensor.begin(9, bytes);
  x.before.begin(5, tensor.size() + bytes);
  x.before.append(tensor);
  initializer_bytes_ += x.before.size() + bytes;
  initializers_.push_back(std::move(x));
}

std::string OnnxGraph::weight(const std::string& name, const Tensor& values) {
  const Shape& shape = values.shape();
  add_initializer(OnnxType::float32, {shape.begin(), shape.end()}, {.name = name, .values = values});
  return name;
}

std::string OnnxGraph::constant(OnnxType type, const std::vector<Index>& dims, const std::string& raw) {
  const auto [at, is_new] = constants_.try_emplace({type, dims, raw}, "constant_" + std::to_string(constants_.size()));
  if (is_new) add_initializer(type, dims, {.name = at->second, .raw = raw});
  return at->second;
}

std::string OnnxGraph::number(double value) {
  return constant(OnnxType::float32, {}, raw_bytes<float>({static_cast<float>(value)}));
}

std::string OnnxGraph::integer(Index value) { return constant(OnnxType::int64, {}, raw_bytes<Index>({value})); }

std::string OnnxGraph::integers(const std::vector<Index>& values) {
  return constant(OnnxType::int64, {static_cast<Index>(values.size())}, raw_bytes(values));
}

std::string OnnxGraph::input(const std::string& name, OnnxType type, const std::vector<OnnxDim>& dims) {
  inputs_.message(11, value_message(name, type, dims));
  return name;
}

// The node that computes the value keeps its name, so an Identity gives the value the name of the output.
void OnnxGraph::output(const std::string& name, const std::string& value, const std::vector<OnnxDim>& dims) {
  add_node("Identity", name, {value}, {name}, {});
  outputs_.message(12, value_message(name, OnnxType::float32, dims));
}

void OnnxGraph::save(const char* op, const std::filesystem::path& path,
                     const std::map<std::string, std::string>& metadata) const {
  ProtobufMessage name, model, opset, end;
  name.text(2, "heed");
  const std::size_t graph = nodes_.size() + name.size() + initializer_bytes_ + inputs_.size() + outputs_.size();
  model.integer(1, kIrVersion);
  model.text(2, "heed");
  model.begin(7, graph);
  opset.integer(2, kOpset);
  end.message(8, opset);
  for (const auto& [key, text] : metadata) {
    ProtobufMessage entry;
    entry.text(1, key);
    entry.text(2, text);
    end.message(14, entry);
  }
  const std::size_t size = model.size() + graph + end.size();
  require(size <= kMaxOnnxBytes, op, ": ", path.string(), " would have ", size,
          " bytes; an ONNX file must have at most ", kMaxOnnxBytes, ", because heed does not write external data");

  NewFile file(op, path, size);
  const auto write = [&file](const auto& bytes) { file.write(bytes.data(), bytes.size()); };
  write(model.bytes()), write(nodes_.bytes()), write(name.bytes());
  for (const Initializer& x : initializers_) {
    write(x.before.bytes());
    x.values.defined() ? write(weight_bytes(op, x.name, x.values)) : write(x.raw);
  }
  write(inputs_.bytes()), write(outputs_.bytes()), write(end.bytes());
  file.finish();
}

}  // namespace heed::detail

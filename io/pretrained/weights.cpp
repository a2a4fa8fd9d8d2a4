// Weights between files and models: names, parts of stacked matrices, and forms.
#include <algorithm>
#include <cmath>
#include <heed/core/parallel.hpp>
#include <heed/io/pretrained/weights.hpp>
#include <heed/layers/model.hpp>
#include <set>
#include <sstream>

namespace heed::detail::pretrained {
namespace {

std::string numbered(std::string name, Index block) {
  if (const std::size_t at = name.find('#'); at != name.npos) name.replace(at, 1, std::to_string(block));
  return name;
}

// Some files lack the prefix of the family.
std::string prefix_in(const StoredTensors& tensors, const Family& family, bool gguf) {
  const std::string prefix = gguf ? "" : family.prefix;
  const auto first = tensors.lower_bound(prefix);
  return first != tensors.end() && first->first.starts_with(prefix) ? prefix : "";
}

std::string name_in_file(const Weight& w, bool gguf, const std::string& prefix) {
  if (gguf) return w.gguf;
  return w.hf.starts_with('/') ? w.hf.substr(1) : prefix + w.hf;
}

// A weight of one block, with the part of the parameter that it is.
struct Place {
  std::string name;  // in the file
  Tensor parameter;  // a view of the rows that the weight has
  Form form;
  Index heads;  // of rope_pairs
  const NamedParameter* whole;
};

using ParametersByName = std::map<std::string, const NamedParameter*>;

// The rows of a parameter that a weight has. A bias has the parts of its matrix.
std::pair<Index, Index> rows_of(const Weight& w, const NamedParameter& p, const ParametersByName& parameters) {
  if (w.part < 0) return {0, p.parameter->dim(0)};
  std::string matrix = p.name;
  if (matrix.ends_with(".bias")) matrix.replace(matrix.size() - 4, 4, "weight");
  const std::vector<Index>& parts = parameters.at(matrix)->parts;
  Index begin = 0;
  for (int i = 0; i < w.part; ++i) begin += parts[static_cast<std::size_t>(i)];
  return {begin, begin + parts[static_cast<std::size_t>(w.part)]};
}

// Calls use(place) for all weights of the model. Throws Error if a parameter has no weight.
template <class Use>
void for_each_place(const Family& family, bool gguf, const std::string& prefix, GPT& model, const Use& use) {
  ParametersByName parameters;
  const std::vector<NamedParameter> named = named_parameters(model);
  for (const NamedParameter& p : named) parameters[p.name] = &p;
  std::set<std::string> covered;
  const MultiHeadAttentionOptions& a = model.options().blocks.attention;
  const std::vector<Weight> weights = family.weights(model.options());
  const auto use_at = [&](const Weight& w, Index block) {
    const auto at = parameters.find(numbered(w.heed, block));
    require(at != parameters.end(), "a model of the family ", family.name, " must have the parameter ",
            numbered(w.heed, block));
    const NamedParameter& p = *at->second;
    covered.insert(p.name);
    const auto [begin, end] = rows_of(w, p, parameters);
    const Form form = gguf ? w.gguf_form : w.hf_form;
    const Index heads = w.part == 0 ? a.heads : a.kv_heads > 0 ? a.kv_heads : a.heads;
    use(Place{numbered(name_in_file(w, gguf, prefix), block), p.parameter->detach().slice(0, begin, end), form, heads,
              &p});
  };
  const auto repeated = [](const Weight& w) { return w.heed.find('#') != w.heed.npos; };
  for (auto w = weights.begin(); w != weights.end();) {  // weights of blocks follow each other
    const auto end = repeated(*w) ? std::find_if_not(w, weights.end(), repeated) : w + 1;
    for (Index block = 0; block < (repeated(*w) ? model.options().blocks.layers : 1); ++block)
      std::for_each(w, end, [&](const Weight& each) { use_at(each, block); });
    w = end;
  }
  for (const NamedParameter& p : named)
    require(covered.contains(p.name), "models of the family ", family.name, " have no parameter ", p.name,
            "; this model cannot be stored as one of them");
}

// Rows of each head in the order of heed (the first halves of all pairs, then the second) from pairs of neighbours, or
// back.
Tensor reordered(const Tensor& x, Index heads, bool from_pairs) {
  const Index half = x.dim(0) / heads / 2, rest = x.numel() / x.dim(0);
  const Shape pairs = from_pairs ? Shape{heads, half, 2, rest} : Shape{heads, 2, half, rest};
  return x.contiguous().view(pairs).transpose(1, 2).contiguous().view(x.shape());
}

Tensor from_file(Tensor x, const Place& place) {
  switch (place.form) {
    case Form::plain: return x;
    case Form::transposed: return x.t();
    case Form::rope_pairs: return reordered(x, place.heads, true);
    case Form::plus_one: return x - 1;
  }
  return x;
}

bool keeps_rows(Form form) { return form == Form::plain || form == Form::rope_pairs; }

// GGUF files have quantized weights as they are, in forms that keep rows; others have their numbers.
FileWeight to_file(const Place& place, bool gguf) {
  const Tensor& x = place.parameter;
  const bool numbers = is_quantized(x.dtype()) && !(gguf && keeps_rows(place.form));
  const auto changed = [&](std::function<Tensor(const Tensor&)> change) {
    return FileWeight{place.name, x,
                      [numbers, change](const Tensor& y) { return change(numbers ? y.to(DType::float32) : y); }};
  };
  switch (place.form) {
    case Form::plain: return numbers ? changed([](const Tensor& y) { return y; }) : FileWeight{place.name, x};
    case Form::transposed: return {place.name, x.t()};
    case Form::rope_pairs:
      return changed([heads = place.heads](const Tensor& y) { return reordered(y, heads, false); });
    case Form::plus_one: return changed([](const Tensor& y) { return y + 1; });
  }
  return {};
}

bool without_effect(const Family& family, const std::string& name) {
  std::istringstream parts(family.without_effect);
  for (std::string part; parts >> part;)
    if (name.find(part) != name.npos) return true;
  return false;
}

// Files may store a tied output, too. transformers uses it if its values differ from the embedding.
void check_tied_output(const StoredTensors& tensors, const std::string& file, const Family& family, bool gguf,
                       const std::string& prefix, const GPTOptions& options) {
  const auto output = tensors.find(family.output);
  if (gguf || !options.tied || output == tensors.end()) return;
  const std::vector<Weight> all = family.weights(options);
  const auto weight = std::ranges::find(all, "tokens.weight", &Weight::heed);
  const StoredTensor &tokens = tensors.find(name_in_file(*weight, gguf, prefix))->second, &own = output->second;
  require(own.type == tokens.type && std::ranges::equal(own.bytes, tokens.bytes), file, ": ", own.name,
          " differs from ", tokens.name, ", but the configuration ties them; set tie_word_embeddings to false");
}

// ---- Quantized weights ----

// Sums of squares over the numbers that were rounded: of the numbers, and of the errors.
struct Rounding {
  Index numbers = 0;
  double squares = 0, errors = 0;
  double error() const { return squares > 0 ? std::sqrt(errors / squares) : 0; }
};

// x [rows, n] of float32, rounded to q8_0.
Tensor rounded(const Tensor& x, Rounding& sums) {
  const Tensor given = x.dense(), q = given.to(DType::q8_0), y = q.to(DType::float32);
  const Index n = x.dim(-1);
  std::vector<std::pair<double, double>> of_rows(static_cast<std::size_t>(x.rows()));
  parallel_for_each(x.rows(), grain_for(n), [&](Index r) {
    auto& [squares, errors] = of_rows[static_cast<std::size_t>(r)];
    for (Index i = r * n; i < (r + 1) * n; ++i) {
      const double value = given.ptr<float>()[i], error = value - y.ptr<float>()[i];
      squares += value * value, errors += error * error;
    }
  });
  for (const auto& [squares, errors] : of_rows) sums.squares += squares, sums.errors += errors;
  sums.numbers += x.numel();
  return q;
}

// A tensor of a file rounded to q8_0, some rows at a time, so that little memory is needed.
Tensor rounded_from(const StoredTensor& stored, Rounding& sums) {
  const Index n = stored.shape.back(), all = stored.shape[0], step = std::max<Index>(1, (Index{1} << 22) / n);
  const auto row_bytes = stored.bytes.size() / static_cast<std::size_t>(all);
  Tensor q = Tensor::empty(stored.shape, DType::q8_0);
  for (Index row = 0; row < all; row += step) {
    const Index end = std::min(all, row + step);
    StoredTensor part = stored;
    part.shape = {end - row, n};
    part.bytes = stored.bytes.subspan(static_cast<std::size_t>(row) * row_bytes,
                                      static_cast<std::size_t>(end - row) * row_bytes);
    q.slice(0, row, end).copy_(rounded(load(part, DType::float32), sums));
  }
  return q;
}

// The dtype for a part of a parameter.
DType dtype_of_part(const Place& place, const StoredTensor& stored, const LoadPretrainedOptions& options) {
  const DType converted = detail::converted_type(*place.whole, options.dtype);
  const bool is_weight = detail::converted_type(*place.whole, DType::bfloat16) == DType::bfloat16;
  if (!options.as_stored || !is_weight || !is_quantized(stored.type) || !keeps_rows(place.form)) return converted;
  return quantized_dtype(stored.type).value_or(DType::q8_0);
}

// Gives parameters the types that the options say. The maps in a stacked matrix that have different types become q8_0.
void set_dtypes(const StoredTensors& tensors, const Family& family, bool gguf, const std::string& prefix, GPT& model,
                const LoadPretrainedOptions& options) {
  std::map<Parameter*, DType> types;
  for_each_place(family, gguf, prefix, model, [&](const Place& place) {
    const DType type = dtype_of_part(place, tensors.find(place.name)->second, options);
    const auto [known, is_new] = types.try_emplace(place.whole->parameter, type);
    if (known->second != type) known->second = DType::q8_0;
  });
  for (const NamedParameter& p : named_parameters(model))
    if (const DType type = types.at(p.parameter); type != p.parameter->dtype()) {
      *p.parameter = Parameter(Tensor::empty(p.parameter->shape(), type));
      p.parameter->set_path(p.name);
    }
}

// The values of a quantized part.
Tensor blocks_for(const Place& place, const StoredTensor& stored, QuantizedWeights& counts, Rounding& sums) {
  const DType type = place.parameter.dtype();
  if (stored_type_for(type) == stored.type && keeps_rows(place.form)) {
    counts.stored += place.parameter.numel();
    return from_file(load(stored, type), place);
  }
  if (keeps_rows(place.form)) return from_file(rounded_from(stored, sums), place);
  return rounded(from_file(load(stored, DType::float32), place), sums);
}

}  // namespace

QuantizedWeights round_weights(GPT& model) {
  const NoTape no_tape;
  Rounding sums;
  for (const NamedParameter& p : named_parameters(model)) {
    if (detail::converted_type(p, DType::q8_0) != DType::q8_0) continue;
    *p.parameter = Parameter(rounded(p.parameter->detach().to(DType::float32), sums));
    p.parameter->set_path(p.name);
  }
  return {0, sums.numbers, sums.error()};
}

QuantizedWeights load_weights(const StoredTensors& tensors, const std::string& file, const Family& family, bool gguf,
                              GPT& model, const LoadPretrainedOptions& options,
                              const std::function<void(const StoredTensor&)>& forget) {
  const NoTape no_tape;
  const std::string prefix = prefix_in(tensors, family, gguf);
  std::set<std::string_view> used;
  for_each_place(family, gguf, prefix, model, [&](const Place& place) {
    const auto at = tensors.find(place.name);
    require(at != tensors.end(), file, ": the tensor ", place.name, " is missing");
    const Shape& own = place.parameter.shape();
    const Shape expected = place.form == Form::transposed ? Shape{own[1], own[0]} : own;
    require(at->second.shape == expected, file, ": ", place.name, " is ", at->second.shape,
            " but the configuration requires ", expected);
    used.insert(at->first);
  });
  for (const auto& [name, tensor] : tensors)
    require(used.contains(name) || without_effect(family, name), file, ": heed does not know the tensor ", name,
            " in a model of the family ", family.name);
  check_tied_output(tensors, file, family, gguf, prefix, model.options());
  set_dtypes(tensors, family, gguf, prefix, model, options);
  QuantizedWeights counts;
  Rounding sums;
  for_each_place(family, gguf, prefix, model, [&](const Place& place) {
    const StoredTensor& stored = tensors.find(place.name)->second;
    Tensor rows = place.parameter;
    const bool plain = place.form == Form::plain || place.form == Form::transposed;
    if (is_quantized(rows.dtype()))
      rows.copy_(blocks_for(place, stored, counts, sums));
    else
      rows.copy_(from_file(load(stored, plain ? rows.dtype() : DType::float32), place));
    forget(stored);
  });
  counts.rounded = sums.numbers, counts.error = sums.error();
  return counts;
}

std::vector<FileWeight> file_weights(const Family& family, bool gguf, GPT& model) {
  const NoTape no_tape;
  std::vector<FileWeight> all;
  for_each_place(family, gguf, family.prefix, model, [&](const Place& place) { all.push_back(to_file(place, gguf)); });
  return all;
}

}  // namespace heed::detail::pretrained

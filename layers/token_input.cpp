// The input of a Transformer: tokens, and positions of rows of any lengths.
#include <cmath>
#include <heed/layers/attention/detail/row_lengths.hpp>
#include <heed/layers/token_input.hpp>

namespace heed {

TokenInput::TokenInput(const TokenInputOptions& o, Rng& rng) : drop{o.dropout}, options_(o) {
  if (o.vocabulary) tokens.emplace(*o.vocabulary, o.width, rng);
  if (o.positions == PositionKind::learned) positions.emplace(o.context, o.width, rng);
  if (o.positions == PositionKind::sinusoidal) sinusoids_.emplace(o.context, o.width);
  if (o.token_types > 0) types.emplace(o.token_types, o.width, rng);
  if (o.norm) norm.emplace(*o.norm, o.width);
}

bool TokenInput::bounded() const { return positions || (sinusoids_ && !options_.beyond_context); }

Tensor TokenInput::embed(In x, const Embedding& table, const Tensor& seen, const AttentionCall& call,
                         const Tensor& token_types) const {
  check(x.rank() == 2 && x.dtype() == DType::int32, x.where(), options_.name, ": x is ", x.tensor(),
        "; it must be int32 [batch, positions]");
  check(!token_types.defined() || (types && token_types.shape() == x.shape() && token_types.dtype() == DType::int32),
        x.where(), options_.name, ": token_types are ", token_types, "; ",
        types ? "they must be int32 of the shape of x" : "this model has no types of tokens");
  Tensor h = table(x);
  if (options_.scaled) h = h * std::sqrt(static_cast<double>(options_.width));
  h = with_positions(x, h, seen, call);
  if (token_types.defined())
    h = h + (*types)(token_types);
  else if (types)
    h = h + (*types)(Tensor::zeros({1, 1}, DType::int32));
  return drop(norm ? (*norm)(h) : h);
}

Tensor TokenInput::with_positions(In x, Tensor h, const Tensor& seen, const AttentionCall& call) const {
  const Index context = options_.context, end = detail::end_of_rows(options_.name, seen, x, call);
  check(!bounded() || end <= context, x.where(), options_.name, ": x reaches position ", end,
        " but the model's context is ", context);
  if (positions) {
    const auto at = [&](Index first, Index count) { return (*positions)(count, first, x.where()); };
    const auto of_places = [&](const Tensor& places) { return (*positions)(places); };
    return h + detail::at_positions(x, seen, call, context, at, of_places);
  }
  if (!sinusoids_) return h;
  std::optional<SinusoidalPositions> longer;
  if (end > context) longer.emplace(end, options_.width);
  const SinusoidalPositions& sinusoids = longer ? *longer : *sinusoids_;
  const auto at = [&](Index first, Index count) { return sinusoids(count, first, h.dtype(), x.where()); };
  const auto of_places = [&](const Tensor& places) { return sinusoids(places, h.dtype()); };
  return h + detail::at_positions(x, seen, call, std::max(end, context), at, of_places);
}

void TokenInput::members(MemberVisitor& visit) {
  visit("tokens", tokens);
  visit("positions", positions);
  visit("types", types);
  visit("input_norm", norm);
}

}  // namespace heed

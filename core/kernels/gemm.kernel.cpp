#include "gemm.hpp"

#include "gemm_few.hpp"
#include "gemm_operands.hpp"

namespace heed::kernels::HEED_LEVEL {
namespace {

// The packed b: for each block of k, its panels one after another, [steps][kPanel] each.
template <class P>
long panels(const GemmProblem& g) {
  return ceil_div(g.n, kPanel<P>);
}

template <class P>
size_t packed_bytes(const GemmProblem& g) {
  return static_cast<size_t>(panels<P>(g) * DepthBlocks<P>(g.k).steps * kPanel<P>) *
         sizeof(typename Product<P>::Element);
}

template <class P>
long panel_offset(const GemmProblem& g, const DepthBlocks<P>& blocks, long q, long j) {
  return (blocks.first(q) * panels<P>(g) + blocks.depth(q) * j) * kPanel<P>;
}

template <class P, class S>
void pack_b(const GemmProblem& g, long begin, long end, void* packed) {
  const DepthBlocks<P> blocks(g.k);
  auto* out = static_cast<typename Product<P>::Element*>(packed);
  for (long q = 0; q < blocks.count; ++q)
    for (long j = begin; j < end; ++j)
      Operands<P, S>::pack_panel(g, j * kPanel<P>, blocks.first(q), blocks.depth(q),
                                 out + panel_offset(g, blocks, q, j));
}

template <class P, class S>
void block(const GemmProblem& g, long row, long rows, long begin, long end, const void* packed) {
  using E = typename Product<P>::Element;
  using T = typename Product<P>::Sum;
  alignas(64) E scratch[(kBlockRows + kWidth<T>)*kBlockDepth];
  const DepthBlocks<P> blocks(g.k);
  for (long q = 0; q < blocks.count; ++q) {
    const long depth = blocks.depth(q);
    const Rows<E> a = Operands<P, S>::rows(g, row, rows, blocks.first(q), depth, scratch);
    const bool last = q + 1 == blocks.count;
    for (long j = begin; j < end; ++j) {
      const long column = j * kPanel<P>, left = g.n - column;
      const int columns = static_cast<int>(left < kPanel<P> ? left : kPanel<P>);
      const E* b = static_cast<const E*>(packed) + panel_offset(g, blocks, q, j);
      const T* bias = last && g.bias != nullptr ? static_cast<const T*>(g.bias) + column : nullptr;
      const TileOut<T> out{static_cast<T*>(g.c) + row * g.ldc + column, g.ldc, g.add || q > 0, static_cast<T>(g.alpha),
                           bias};
      if (a.order == Order::by_row)
        panel<P, Order::by_row, true>(rows, columns, depth, a.data, a.stride, b, kPanel<P>, out);
      else
        panel<P, Order::by_column, true>(rows, columns, depth, a.data, a.stride, b, kPanel<P>, out);
      if (last) epilogue<T>(g, row, rows, column, columns);
    }
  }
}

// float32 operands may each be bf16 in memory.
void pack_float(const GemmProblem& g, long begin, long end, void* packed) {
  if (g.b_bf16)
    pack_b<float, uint16_t>(g, begin, end, packed);
  else
    pack_b<float, float>(g, begin, end, packed);
}
void block_float(const GemmProblem& g, long row, long rows, long begin, long end, const void* packed) {
  if (g.a_bf16)
    block<float, uint16_t>(g, row, rows, begin, end, packed);
  else
    block<float, float>(g, row, rows, begin, end, packed);
}
void few_float(const GemmProblem& g, long begin, long end) {
  if (g.a_bf16 && g.b_bf16)
    few_rows_as<float, uint16_t, uint16_t>(g, begin, end);
  else if (g.a_bf16)
    few_rows_as<float, uint16_t, float>(g, begin, end);
  else if (g.b_bf16)
    few_rows_as<float, float, uint16_t>(g, begin, end);
  else
    few_rows_as<float, float, float>(g, begin, end);
}

template <class P>
constexpr GemmKind kind(decltype(GemmKind::pack) pack, decltype(GemmKind::block) block,
                        decltype(GemmKind::few_rows) few) {
  return {kPanel<P>, kBlockRows, Product<P>::kRows, sizeof(typename Product<P>::Sum), packed_bytes<P>, pack,
          block,     few};
}

constexpr GemmKind kind_float = kind<float>(pack_float, block_float, few_float);
constexpr GemmKind kind_double =
    kind<double>(pack_b<double, double>, block<double, double>, few_rows_as<double, double, double>);
#if defined(__AVX512BF16__)
constexpr GemmKind kind_bf16 = kind<Bf16Pairs>(pack_b<Bf16Pairs, uint16_t>, block<Bf16Pairs, uint16_t>, few_float);
#else
constexpr GemmKind kind_bf16 = kind_float;
#endif

}  // namespace

extern const GemmTable gemm_table;
const GemmTable gemm_table = {kind_float, kind_double, kind_bf16};

}  // namespace heed::kernels::HEED_LEVEL

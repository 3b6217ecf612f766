// C(m, v) = sum over k of A(m, k) * B[k][v]: a scalar of A times a vector of B, summed in the order of k.
// Every product of the kernel is this one, with other strides and another epilogue. The order of summation of an
// element depends on k alone, never on the tile it falls into: that is what makes results independent of shapes around.
#pragma once
#include "shared/shape.hpp"
#include "simd.hpp"

namespace shoal {
namespace SHOAL_ISA {

// Floats from one row to the next from which on a matrix is taken to be larger than the fast caches. What the epilogue
// works on is then fetched ahead; fetching the rows of B ahead was slower.
constexpr int64_t kWide = 512;

struct Matrices {
  const float* A;
  int64_t a_row, a_k;  // A(m, k) = A[m * a_row + k * a_k]
  const float* B;
  int64_t b_k;    // B[k] starts at B + k * b_k
  int64_t depth;  // number of k
};

// One register tile: NV vectors, and half of one if Half, x NM rows; begun and ended by the epilogue.
template <int NV, bool Half, int NM, class Epilogue>
__attribute__((noinline)) void tile(const Matrices& p, int64_t m0, int64_t j0, const Epilogue& epilogue) {
  V sums[NM][NV + 1];
  H halves[NM];
#pragma GCC unroll 16
  for (int m = 0; m < NM; ++m) {
#pragma GCC unroll 8
    for (int v = 0; v < NV; ++v) sums[m][v] = epilogue.template begin<V>(m0 + m, j0 + v * L);
    if constexpr (Half) halves[m] = epilogue.template begin<H>(m0 + m, j0 + NV * L);
  }
  const float* b = p.B + j0;
  const float* a = p.A + m0 * p.a_row;
  const int64_t row = p.a_row, row3 = 3 * row, a_k = p.a_k, b_k = p.b_k;
  if (b_k >= kWide)
    for (int m = 0; m < NM; ++m)
      for (int j = 0; j < (NV + Half) * L; j += kLine) epilogue.prefetch(m0 + m, j0 + j, NM);
  for (int64_t k = 0; k < p.depth; ++k, b += b_k, a += a_k) {
    V right[NV + 1];
#pragma GCC unroll 8
    for (int v = 0; v < NV; ++v) right[v] = load(b + v * L);
    const H right_half = Half ? load<H>(b + NV * L) : H{};
#pragma GCC unroll 16
    for (int m = 0; m < NM; ++m) {
      // Rows in fours: base, base + row, base + 2 row and base + row3 are all one addressing mode each.
      const float* four = a + (m / 4) * 4 * row;
      const float scalar = four[m % 4 == 3 ? row3 : (m % 4) * row];
      const V left = set1(scalar);
#pragma GCC unroll 8
      for (int v = 0; v < NV; ++v) sums[m][v] += left * right[v];
      if constexpr (Half) halves[m] += (NV > 0 ? lower_half(left) : set1<H>(scalar)) * right_half;
    }
  }
  // A copy: vectors may alias anything, so what stands in memory would be loaded again after every store.
  const Epilogue finish = epilogue;
#pragma GCC unroll 16
  for (int m = 0; m < NM; ++m) {
#pragma GCC unroll 8
    for (int v = 0; v < NV; ++v) finish(m0 + m, j0 + v * L, sums[m][v]);
    if constexpr (Half) finish(m0 + m, j0 + NV * L, halves[m]);
  }
}

// All rows of one panel of columns, in tiles of nearly equal height, so that no tile is too low to hide latency.
template <int NV, bool Half, class Epilogue, int... NM>
SHOAL_INLINE void panel(const Matrices& p, int64_t rows, int64_t j0, const Epilogue& epilogue,
                        std::integer_sequence<int, NM...>) {
  using Tile = void (*)(const Matrices&, int64_t, int64_t, const Epilogue&);
  static constexpr Tile tiles[] = {tile<NV, Half, NM + 1, Epilogue>...};
  constexpr int64_t most = sizeof...(NM);
  const int64_t count = (rows + most - 1) / most;
  const int64_t low = rows / count, higher = rows % count;
  int64_t m0 = 0;
  for (int64_t i = 0; i < count; ++i) {
    const int64_t height = low + (i < higher);
    tiles[height - 1](p, m0, j0, epilogue);
    m0 += height;
  }
}

template <int NV, bool Half, class Epilogue>
SHOAL_INLINE void panel(const Matrices& p, int64_t rows, int64_t j0, const Epilogue& epilogue) {
  constexpr int most = NV <= kMaxVectors ? kMaxRows[NV] : kFewRows;
  panel<NV - Half, Half>(p, rows, j0, epilogue, std::make_integer_sequence<int, most>{});
}

// Columns in panels of nearly equal width. With one or two rows (the gradient of one or two outputs), panels are wider,
// so that there are enough independent sums in flight. If the last columns fill at most half a vector, only that half
// is computed. What is beside them is not touched: it is padding, which an epilogue would leave at zero, too.
template <class Epilogue>
void multiply(const Matrices& p, int64_t rows, int64_t columns, const Epilogue& epilogue) {
  const int64_t vectors = (columns + L - 1) / L;
  const int64_t most = rows <= kFewRows ? kFewRowsVectors : kMaxVectors;
  const int64_t panels = (vectors + most - 1) / most;
  const int64_t low = vectors / panels, wider = vectors % panels;
  const bool half = kHalf < L && rows > kFewRows && vectors * L - columns >= L - kHalf;
  int64_t j0 = 0;
  for (int64_t i = 0; i < panels; ++i) {
    const int64_t width = low + (i < wider);
    switch (2 * width + (half && i + 1 == panels)) {
#define SHOAL_PANEL(n) \
  case 2 * n: panel<n, false>(p, rows, j0, epilogue); break;
      SHOAL_PANEL(1)
      SHOAL_PANEL(2)
      SHOAL_PANEL(3)
      SHOAL_PANEL(4)
      SHOAL_PANEL(5)
      SHOAL_PANEL(6)
#undef SHOAL_PANEL
#if SHOAL_LANES == 16
      case 3: panel<1, true>(p, rows, j0, epilogue); break;
      case 5: panel<2, true>(p, rows, j0, epilogue); break;
      case 7: panel<3, true>(p, rows, j0, epilogue); break;
      case 9: panel<4, true>(p, rows, j0, epilogue); break;
#endif
    }
    j0 += width * L;
  }
}

}  // namespace SHOAL_ISA
}  // namespace shoal

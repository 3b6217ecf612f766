// C(m, v) = sum over k of A(m, k) * B[k][v]: a scalar of A times a vector of B, summed in the order of k.
// Every product of the kernel is this one, with other strides and another epilogue. The order of summation of an
// element depends on k alone, never on the tile it falls into: that is what makes results independent of shapes around.
#pragma once
#include "simd.hpp"

namespace shoal {
namespace SHOAL_ISA {

struct Matrices {
  const float* A;
  int64_t a_row, a_k;  // A(m, k) = A[m * a_row + k * a_k]
  const float* B;
  int64_t b_k;    // B[k] starts at B + k * b_k
  int64_t depth;  // number of k
};

// One register tile: NV vectors x NM rows, begun and ended by the epilogue.
template <int NV, int NM, class Epilogue>
__attribute__((noinline)) void tile(const Matrices& p, int64_t m0, int64_t v0, const Epilogue& epilogue) {
  V sums[NM][NV];
#pragma GCC unroll 16
  for (int m = 0; m < NM; ++m)
#pragma GCC unroll 8
    for (int v = 0; v < NV; ++v) sums[m][v] = epilogue.begin(m0 + m, (v0 + v) * L);
  const float* b = p.B + v0 * L;
  const float* a = p.A + m0 * p.a_row;
  const int64_t row = p.a_row, row3 = 3 * row, a_k = p.a_k, b_k = p.b_k;
  for (int64_t k = 0; k < p.depth; ++k, b += b_k, a += a_k) {
    V right[NV];
#pragma GCC unroll 8
    for (int v = 0; v < NV; ++v) right[v] = load(b + v * L);
#pragma GCC unroll 16
    for (int m = 0; m < NM; ++m) {
      // Rows in fours: base, base + row, base + 2 row and base + row3 are all one addressing mode each.
      const float* four = a + (m / 4) * 4 * row;
      const V left = set1(four[m % 4 == 3 ? row3 : (m % 4) * row]);
#pragma GCC unroll 8
      for (int v = 0; v < NV; ++v) sums[m][v] += left * right[v];
    }
  }
  // A copy: vectors may alias anything, so what stands in memory would be loaded again after every store.
  const Epilogue finish = epilogue;
#pragma GCC unroll 16
  for (int m = 0; m < NM; ++m)
#pragma GCC unroll 8
    for (int v = 0; v < NV; ++v) finish(m0 + m, (v0 + v) * L, sums[m][v]);
}

// All rows of one panel of NV vectors, in tiles of nearly equal height, so that no tile is too low to hide latency.
template <int NV, class Epilogue, int... NM>
SHOAL_INLINE void panel(const Matrices& p, int64_t rows, int64_t v0, const Epilogue& epilogue,
                        std::integer_sequence<int, NM...>) {
  using Tile = void (*)(const Matrices&, int64_t, int64_t, const Epilogue&);
  static constexpr Tile tiles[] = {tile<NV, NM + 1, Epilogue>...};
  constexpr int64_t most = sizeof...(NM);
  const int64_t count = (rows + most - 1) / most;
  const int64_t low = rows / count, higher = rows % count;
  int64_t m0 = 0;
  for (int64_t i = 0; i < count; ++i) {
    const int64_t height = low + (i < higher);
    tiles[height - 1](p, m0, v0, epilogue);
    m0 += height;
  }
}

// Columns in panels of nearly equal width. With one or two rows (the gradient of one or two outputs), panels are wider,
// so that there are enough independent sums in flight.
template <class Epilogue>
void multiply(const Matrices& p, int64_t rows, int64_t columns, const Epilogue& epilogue) {
  const int64_t vectors = (columns + L - 1) / L;
  const int64_t most = rows <= kFewRows ? kFewRowsVectors : kMaxVectors;
  const int64_t panels = (vectors + most - 1) / most;
  const int64_t low = vectors / panels, wider = vectors % panels;
  constexpr auto few = std::make_integer_sequence<int, kFewRows>{};
  int64_t v0 = 0;
  for (int64_t i = 0; i < panels; ++i) {
    const int64_t width = low + (i < wider);
    switch (width) {
      case 1: panel<1>(p, rows, v0, epilogue, std::make_integer_sequence<int, kMaxRows[1]>{}); break;
      case 2: panel<2>(p, rows, v0, epilogue, std::make_integer_sequence<int, kMaxRows[2]>{}); break;
      case 3: panel<3>(p, rows, v0, epilogue, std::make_integer_sequence<int, kMaxRows[3]>{}); break;
#if SHOAL_REGISTERS >= 32
      case 4: panel<4>(p, rows, v0, epilogue, std::make_integer_sequence<int, kMaxRows[4]>{}); break;
#else
      case 4: panel<4>(p, rows, v0, epilogue, few); break;
#endif
      case 5: panel<5>(p, rows, v0, epilogue, few); break;
      case 6: panel<6>(p, rows, v0, epilogue, few); break;
    }
    v0 += width;
  }
}

}  // namespace SHOAL_ISA
}  // namespace shoal

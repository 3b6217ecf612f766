// One source for every instruction set: GCC/Clang vector extensions. The few things that need more stand here.
#pragma once
#include <cstdint>
#include <cstring>
#include <utility>
#if defined(__SSE2__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

#include "shared/inline.hpp"

#if !defined(SHOAL_LANES) || !defined(SHOAL_ISA)
#error "compile with SHOAL_LANES and SHOAL_ISA"
#endif
#define SHOAL_INLINE_LAMBDA __attribute__((always_inline))

namespace shoal {
namespace SHOAL_ISA {

constexpr int L = SHOAL_LANES;
typedef float V __attribute__((vector_size(L * 4), aligned(L * 4), may_alias));
typedef int32_t VI __attribute__((vector_size(L * 4), aligned(L * 4), may_alias));
typedef uint32_t VU __attribute__((vector_size(L * 4), aligned(L * 4), may_alias));

// Register tiles, (vectors x rows), by what the register file holds.
#if SHOAL_REGISTERS >= 32
constexpr int kMaxVectors = 4;
constexpr int kMaxRows[5] = {0, 12, 12, 8, 6};
#else
constexpr int kMaxVectors = 3;
constexpr int kMaxRows[5] = {0, 10, 6, 4, 0};
#endif

constexpr int kFewRows = 2, kFewRowsVectors = 6;

SHOAL_INLINE V load(const float* p) { return *reinterpret_cast<const V*>(p); }
SHOAL_INLINE void store(float* p, V v) { *reinterpret_cast<V*>(p) = v; }
// x - 0 is x for every x, so this is one broadcast; 0 + x is not, for -0, and would cost an addition.
SHOAL_INLINE V set1(float x) { return x - V{}; }
SHOAL_INLINE V select(VI mask, V yes, V no) { return mask ? yes : no; }
SHOAL_INLINE VI bits(V v) { return reinterpret_cast<VI>(v); }
SHOAL_INLINE V from_bits(VI v) { return reinterpret_cast<V>(v); }
SHOAL_INLINE V abs(V v) { return from_bits(bits(v) & 0x7fffffff); }
// Lanes where the comparison fails keep x, so that NaN passes through.
SHOAL_INLINE V at_least(V x, float low) { return select(x < low, set1(low), x); }
SHOAL_INLINE V at_most(V x, float high) { return select(x > high, set1(high), x); }

template <int... I>
SHOAL_INLINE VI lane_numbers_(std::integer_sequence<int, I...>) {
  return VI{I...};
}
SHOAL_INLINE VI lane_numbers() { return lane_numbers_(std::make_integer_sequence<int, L>{}); }

// The shim: square roots, which vector extensions lack.
SHOAL_INLINE V sqrt(V v) {
#if defined(__AVX512F__) && SHOAL_LANES == 16
  return reinterpret_cast<V>(_mm512_sqrt_ps(reinterpret_cast<__m512>(v)));
#elif defined(__AVX__) && SHOAL_LANES == 8
  return reinterpret_cast<V>(_mm256_sqrt_ps(reinterpret_cast<__m256>(v)));
#elif defined(__SSE2__) && SHOAL_LANES == 4
  return reinterpret_cast<V>(_mm_sqrt_ps(reinterpret_cast<__m128>(v)));
#elif defined(__aarch64__) && SHOAL_LANES == 4
  return reinterpret_cast<V>(vsqrtq_f32(reinterpret_cast<float32x4_t>(v)));
#else
  V result;
  for (int i = 0; i < L; ++i) result[i] = __builtin_sqrtf(v[i]);
  return result;
#endif
}

SHOAL_INLINE float sum(V v) {
  float total = 0;
  for (int i = 0; i < L; ++i) total += v[i];
  return total;
}

#if defined(__clang__) || __GNUC__ >= 12
#define SHOAL_SHUFFLE(a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else
#define SHOAL_SHUFFLE(a, b, ...) __builtin_shuffle(a, b, VI{__VA_ARGS__})
#endif

// Lane l of pairs_(a, b): a[l] + a[l ^ D] where bit D of l is clear, b[l] + b[l ^ D] where it is set.
template <int D, int... I>
SHOAL_INLINE V pairs_(V a, V b, std::integer_sequence<int, I...>) {
  const V here = SHOAL_SHUFFLE(a, b, ((I & D) ? I + L : I)...);
  const V there = SHOAL_SHUFFLE(a, b, ((I & D) ? (I ^ D) + L : (I ^ D))...);
  return here + there;
}
// Lane l of the result is the sum of the lanes of rows[l]: a tree of L - 1 shuffled additions.
template <int D = 1>
SHOAL_INLINE V sum_rows(V* rows) {
  if constexpr (D == L) {
    return rows[0];
  } else {
#pragma GCC unroll 16
    for (int i = 0; i < L / (2 * D); ++i)
      rows[i] = pairs_<D>(rows[2 * i], rows[2 * i + 1], std::make_integer_sequence<int, L>{});
    return sum_rows<2 * D>(rows);
  }
}

template <int D, int... I>
SHOAL_INLINE void exchange_(V& a, V& b, std::integer_sequence<int, I...>) {
  const V first = SHOAL_SHUFFLE(a, b, ((I & D) ? (I ^ D) + L : I)...);
  const V second = SHOAL_SHUFFLE(a, b, ((I & D) ? I + L : (I ^ D))...);
  a = first;
  b = second;
}
// Transpose an L x L block held in L vectors.
template <int D = 1>
SHOAL_INLINE void transpose(V* rows) {
  if constexpr (D < L) {
#pragma GCC unroll 16
    for (int i = 0; i < L; ++i)
      if (!(i & D)) exchange_<D>(rows[i], rows[i | D], std::make_integer_sequence<int, L>{});
    transpose<2 * D>(rows);
  }
}

}  // namespace SHOAL_ISA
}  // namespace shoal

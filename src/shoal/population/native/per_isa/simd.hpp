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

// Half a vector, for the last columns of a matrix: where a 512-bit operation is two of 256 bits inside the processor,
// it costs half. Narrower vectors than 256 bits cost what 256 bits cost, so there the "half" is the whole.
constexpr int kHalf = L == 16 ? 8 : L;
typedef float H __attribute__((vector_size(kHalf * 4), aligned(kHalf * 4), may_alias));
typedef int32_t HI __attribute__((vector_size(kHalf * 4), aligned(kHalf * 4), may_alias));
typedef uint32_t HU __attribute__((vector_size(kHalf * 4), aligned(kHalf * 4), may_alias));
template <class T>
constexpr int lanes_of = sizeof(T) / sizeof(float);

// Register tiles, (vectors x rows), by what the register file holds.
#if SHOAL_REGISTERS >= 32
constexpr int kMaxVectors = 4;
constexpr int kMaxRows[5] = {0, 12, 12, 8, 6};
#else
constexpr int kMaxVectors = 3;
constexpr int kMaxRows[5] = {0, 10, 6, 4, 2};
#endif

constexpr int kFewRows = 2, kFewRowsVectors = 6;

// T is V or H, here and below.
template <class T = V>
SHOAL_INLINE T load(const float* p) {
  return *reinterpret_cast<const T*>(p);
}
template <class T>
SHOAL_INLINE void store(float* p, T v) {
  *reinterpret_cast<T*>(p) = v;
}
// x - 0 is x for every x, so this is one broadcast; 0 + x is not, for -0, and would cost an addition.
template <class T = V>
SHOAL_INLINE T set1(float x) {
  return x - T{};
}
template <class M, class T>
SHOAL_INLINE T select(M mask, T yes, T no) {
  return mask ? yes : no;
}
template <class T>
SHOAL_INLINE auto bits(T v) {
  if constexpr (lanes_of<T> == L)
    return reinterpret_cast<VI>(v);
  else
    return reinterpret_cast<HI>(v);
}
template <class I>
SHOAL_INLINE auto from_bits(I v) {
  if constexpr (lanes_of<I> == L)
    return reinterpret_cast<V>(v);
  else
    return reinterpret_cast<H>(v);
}
template <class T>
SHOAL_INLINE T abs(T v) {
  return from_bits(bits(v) & 0x7fffffff);
}
// Lanes where the comparison fails keep x, so that NaN passes through.
template <class T>
SHOAL_INLINE T at_least(T x, float low) {
  return select(x < low, set1<T>(low), x);
}
template <class T>
SHOAL_INLINE T at_most(T x, float high) {
  return select(x > high, set1<T>(high), x);
}

SHOAL_INLINE H lower_half(V v) {
#if SHOAL_LANES == 16 && defined(__AVX512F__)
  return reinterpret_cast<H>(_mm512_castps512_ps256(reinterpret_cast<__m512>(v)));
#else
  H half;
  std::memcpy(&half, &v, sizeof(H));
  return half;
#endif
}

template <class I, int... N>
SHOAL_INLINE I lane_numbers_(std::integer_sequence<int, N...>) {
  return I{N...};
}
template <class I = VI>
SHOAL_INLINE I lane_numbers() {
  return lane_numbers_<I>(std::make_integer_sequence<int, lanes_of<I>>{});
}

// The shim: square roots, which vector extensions lack.
template <class T>
SHOAL_INLINE T sqrt(T v) {
#if defined(__AVX512F__)
  if constexpr (lanes_of<T> == 16) return reinterpret_cast<T>(_mm512_sqrt_ps(reinterpret_cast<__m512>(v)));
#endif
#if defined(__AVX__)
  if constexpr (lanes_of<T> == 8) return reinterpret_cast<T>(_mm256_sqrt_ps(reinterpret_cast<__m256>(v)));
#endif
#if defined(__SSE2__)
  if constexpr (lanes_of<T> == 4) return reinterpret_cast<T>(_mm_sqrt_ps(reinterpret_cast<__m128>(v)));
#elif defined(__aarch64__)
  if constexpr (lanes_of<T> == 4) return reinterpret_cast<T>(vsqrtq_f32(reinterpret_cast<float32x4_t>(v)));
#endif
  T result;
  for (int i = 0; i < lanes_of<T>; ++i) result[i] = __builtin_sqrtf(v[i]);
  return result;
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

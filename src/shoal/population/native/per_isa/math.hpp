// Exponentials, logarithms and the ten activations with their derivatives, to about 1e-6 relative, in every lane.
#pragma once
#include <type_traits>

#include "shared/codes.hpp"
#include "simd.hpp"

namespace shoal {
namespace SHOAL_ISA {

// e^(x + low) as scale * (1 + fraction), so that it and it minus one both keep their full relative accuracy.
// x is at most 88; `low` is a small correction, for arguments that one float cannot hold.
template <class T>
struct Exponential {
  T scale, fraction;
  SHOAL_INLINE T exp() const { return scale * fraction + scale; }
  SHOAL_INLINE T minus_one() const { return scale * fraction + (scale - 1.0f); }
};

template <class T, class... Low>
SHOAL_INLINE Exponential<T> exponential(T x, Low... low) {
  x = at_least(x, -87.0f);
  constexpr float kRound = 12582912.0f;  // 1.5 * 2^23: adding it leaves the nearest integer in the low bits
  const T shifted = x * 1.44269504f + kRound;
  const T n = shifted - kRound;
  const T r = (((x - n * 0.693359375f) - n * -2.12194440e-4f) + ... + low);  // ln 2 in two parts
  T p = set1<T>(1.0f / 5040);
  p = p * r + 1.0f / 720;
  p = p * r + 1.0f / 120;
  p = p * r + 1.0f / 24;
  p = p * r + 1.0f / 6;
  p = p * r + 0.5f;
  const T fraction = (r * r) * p + r;
  const T scale = from_bits((bits(shifted) - 0x4B400000 + 127) << 23);
  return {scale, fraction};
}

template <class T>
SHOAL_INLINE T exp(T x) {
  return exponential(x).exp();
}

// Natural logarithm of a normal number above zero; NaN and infinity pass through.
SHOAL_INLINE V log(V x) {
  const VI raw = bits(x);
  const VI shifted = raw - 0x3f3504f3;  // relative to sqrt(1/2), so that the mantissa is in [sqrt(1/2), sqrt(2))
  const V e = __builtin_convertvector(shifted >> 23, V);
  const V f = from_bits((shifted & 0x7fffff) + 0x3f3504f3) - 1.0f;
  const V s = f / (f + 2.0f), z = s * s;
  V p = set1(2.0f / 9);
  p = p * z + 2.0f / 7;
  p = p * z + 2.0f / 5;
  p = p * z + 2.0f / 3;
  const V result = e * 0.693147182f + (s * z * p + 2.0f * s);
  return select(x < __builtin_inff(), result, x);
}

template <class T>
struct Activated {
  T value, derivative;
};

// Both at once: they share the exponential. What is not used is removed by the compiler.
template <int A, class T>
SHOAL_INLINE Activated<T> activation(T x) {
  const T zero = T{}, one = set1<T>(1.0f);
  if constexpr (A == Identity) {
    return {x, one};
  } else if constexpr (A == Relu) {
    return {select(x <= 0.0f, zero, x), select(x > 0.0f, one, zero)};
  } else if constexpr (A == LeakyRelu) {
    return {select(x > 0.0f, x, x * 0.01f), select(x > 0.0f, one, set1<T>(0.01f))};
  } else if constexpr (A == Hardshrink) {
    const auto inside = (x >= -0.5f) & (x <= 0.5f);
    return {select(inside, zero, x), select(inside, zero, one)};
  } else if constexpr (A == Sigmoid) {
    const T e = exp(-abs(x)), inverse = 1.0f / (1.0f + e);
    return {select(x < 0.0f, e * inverse, inverse), e * inverse * inverse};
  } else if constexpr (A == Tanh) {
    const Exponential<T> e = exponential(abs(x) * -2.0f);
    const T small = e.exp(), inverse = 1.0f / (1.0f + small);
    const T magnitude = -e.minus_one() * inverse;
    return {select(x < 0.0f, -magnitude, magnitude), 4.0f * small * inverse * inverse};
  } else if constexpr (A == Elu) {
    const Exponential<T> e = exponential(at_most(x, 0.0f));
    return {select(x > 0.0f, x, e.minus_one()), select(x > 0.0f, one, e.exp())};
  } else if constexpr (A == Selu) {
    constexpr float kScale = 1.0507009873554805f, kAlpha = 1.6732632423543772f;
    const Exponential<T> e = exponential(at_most(x, 0.0f));
    return {select(x > 0.0f, x * kScale, e.minus_one() * (kScale * kAlpha)),
            select(x > 0.0f, set1<T>(kScale), e.exp() * (kScale * kAlpha))};
  } else if constexpr (A == Gelu) {
    // Upper tail of the normal distribution at |x|: exp(-x^2 / 2) times a fitted polynomial in 1 / (1 + 0.35 |x|).
    constexpr float kEdge = 13.19f;  // exp(-kEdge^2 / 2) is the smallest normal number
    const T a = at_most(abs(x), kEdge);
    const T high = from_bits(bits(a) & ~0xfff);  // 12 bits: its square is exact
    const T density = exponential(-0.5f * high * high, -0.5f * (a - high) * (a + high)).exp();
    const T t = 1.0f / (1.0f + 0.35f * a);
    T p = set1<T>(-0.029126073f);
    p = p * t + 0.143873216f;
    p = p * t - 0.255506518f;
    p = p * t + 0.158931425f;
    p = p * t - 0.0229385302f;
    p = p * t + 0.105433488f;
    p = p * t + 0.119852309f;
    p = p * t + 0.139859098f;
    p = p * t + 0.139621569f;
    const T tail = select(abs(x) > kEdge, zero, density * (p * t));  // below any normal number, however large x
    const T cdf = select(x < 0.0f, tail, 1.0f - tail);
    const T slope = select(abs(x) > kEdge, zero, x * (density * 0.398942280f));
    return {x * cdf, cdf + slope};
  } else {
    static_assert(A == Mish, "unknown activation");
    // tanh(log(1 + e)) = n / (n + 2) with n = e (e + 2), e = exp(x); its derivative is 4 e (1 + e) / (n + 2)^2.
    const T e = exp(at_most(x, 20.0f));
    const T n = e * (e + 2.0f), inverse = 1.0f / (n + 2.0f);
    const auto outside = (x > 20.0f) | (x < -87.0f);  // where float32 knows only one and zero
    const T t = select(outside, select(x > 0.0f, one, zero), n * inverse);
    const T slope = select(outside, zero, (4.0f * e * inverse) * ((1.0f + e) * inverse));
    return {x * t, x * slope + t};
  }
}

// Calls function with the activation as a compile-time constant.
template <class Function>
SHOAL_INLINE void with_activation(int code, Function&& function) {
  switch (code) {
#define SHOAL_CASE(name, word) \
  case name: function(std::integral_constant<int, name>{}); break;
    SHOAL_ACTIVATIONS(SHOAL_CASE)
#undef SHOAL_CASE
  }
}

}  // namespace SHOAL_ISA
}  // namespace shoal

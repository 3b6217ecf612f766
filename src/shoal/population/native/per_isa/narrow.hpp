// Networks with few inputs. Their products are so short that most of the time goes into storing and loading what lies
// between them: here the first product goes straight into the activation, and one pass over the rows makes the
// gradients of both layers. Sums are the same, term by term, as those of gemm.hpp.
#pragma once
#include "gemm.hpp"
#include "shared/kernel.hpp"

namespace shoal {
namespace SHOAL_ISA {
namespace {

constexpr int kNarrow = SHOAL_REGISTERS >= 32 ? 12 : 6;  // inputs and the bias: their gradients must fit into registers
constexpr int kNarrowOutputs = 2;

// ---- where pre-activations come from ----

struct Stored {
  static constexpr int kRows = 1;
  const float* values;
  int64_t stride;
  template <class T>
  SHOAL_INLINE void get(int64_t row, int64_t j, T* x) const {
    x[0] = load<T>(values + row * stride + j);
  }
};

// Computed when they are needed. The last rows may lie past the end of the batch, in its padding; nobody looks at them.
struct ShortProduct {
  static constexpr int kRows = 4;
  Matrices p;
  template <class T>
  SHOAL_INLINE void get(int64_t row, int64_t j, T* x) const {
    const float* a = p.A + row * p.a_row;
    const float* b = p.B + j;
    T sums[kRows] = {};
    for (int64_t k = 0; k < p.depth; ++k, ++a, b += p.b_k) {
      const T right = load<T>(b);
#pragma GCC unroll 4
      for (int i = 0; i < kRows; ++i) sums[i] += set1<T>(a[i * p.a_row]) * right;
    }
#pragma GCC unroll 4
    for (int i = 0; i < kRows; ++i) x[i] = sums[i];
  }
};

// ---- backward through one hidden layer ----

struct NarrowPass {
  const float* X;
  int64_t x_stride;
  const float *values, *slopes;
  int64_t stride;
  const float* errors;
  int64_t error_stride;
  const float* out_weights;
  int64_t out_stride;
  int64_t rows, width;
  int64_t first, end;  // neurons of this part; `first` is a multiple of L, and `end` as well or the width
};

bool narrow_backward_fits(const Shape& s) { return s.inputs() < kNarrow && s.outputs() <= kNarrowOutputs; }

// The gradients of the neurons at column j: K weights into each of them, and O out of it.
template <class T, int K, int O, class Inner, class Outer>
SHOAL_INLINE void narrow_columns(const NarrowPass& p, int64_t j, const Inner& inner, const Outer& outer) {
  T into[K], out[O], weights[O];
#pragma GCC unroll 16
  for (int k = 0; k < K; ++k) into[k] = inner.template begin<T>(k, j);
#pragma GCC unroll 2
  for (int o = 0; o < O; ++o) {
    out[o] = outer.template begin<T>(o, j);
    weights[o] = load<T>(p.out_weights + o * p.out_stride + j);
  }
  const float *x = p.X, *value = p.values + j, *slope = p.slopes + j, *error = p.errors;
  for (int64_t r = 0; r < p.rows; ++r, x += p.x_stride, value += p.stride, slope += p.stride, ++error) {
    T gradient{};
#pragma GCC unroll 2
    for (int o = 0; o < O; ++o) {
      const T e = set1<T>(error[o * p.error_stride]);
      gradient += e * weights[o];
      out[o] += e * load<T>(value);
    }
    gradient = load<T>(slope) * gradient;
#pragma GCC unroll 16
    for (int k = 0; k < K; ++k) into[k] += set1<T>(x[k]) * gradient;
  }
  const Inner finish_inner = inner;
  const Outer finish_outer = outer;
#pragma GCC unroll 16
  for (int k = 0; k < K; ++k) finish_inner(k, j, into[k]);
#pragma GCC unroll 2
  for (int o = 0; o < O; ++o) finish_outer(o, j, out[o]);
}

template <int K, int O, class Inner, class Outer>
void narrow_layers(const NarrowPass& p, const Inner& inner, const Outer& outer) {
  int64_t j = p.first;
  for (; j + L <= p.end; j += L) narrow_columns<V, K, O>(p, j, inner, outer);
  if (p.end < p.width) return;
  const int64_t rest = p.width - j;
  if (rest == 0) {  // the bias of the outputs has a vector to itself
    multiply({p.errors, p.error_stride, 1, p.values + j, p.stride, p.rows}, O, 1, outer.shifted(0, j));
  } else if (kHalf < L && rest < kHalf) {
    narrow_columns<H, K, O>(p, j, inner, outer);
  } else {
    narrow_columns<V, K, O>(p, j, inner, outer);
  }
}

template <class Inner, class Outer, int... K>
void narrow_backward_(const NarrowPass& p, int64_t inputs, int64_t outputs, const Inner& inner, const Outer& outer,
                      std::integer_sequence<int, K...>) {
  using Pass = void (*)(const NarrowPass&, const Inner&, const Outer&);
  static constexpr Pass one[] = {narrow_layers<K + 1, 1, Inner, Outer>...};
  static constexpr Pass two[] = {narrow_layers<K + 1, 2, Inner, Outer>...};
  (outputs == 1 ? one : two)[inputs - 1](p, inner, outer);
}

// `inputs` counts the bias.
template <class Inner, class Outer>
void narrow_backward(const NarrowPass& p, int64_t inputs, int64_t outputs, const Inner& inner, const Outer& outer) {
  narrow_backward_(p, inputs, outputs, inner, outer, std::make_integer_sequence<int, kNarrow>{});
}

}  // namespace
}  // namespace SHOAL_ISA
}  // namespace shoal

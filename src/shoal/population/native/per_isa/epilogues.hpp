// Where a sum of a product begins, and what happens to it at the end: it is stored, or a weight is updated with it.
// `shifted(m, j)` is the same epilogue for the part of the result that begins at row m and column j.
#pragma once
#include "shared/kernel.hpp"
#include "simd.hpp"

namespace shoal {
namespace SHOAL_ISA {
namespace {

// `prefetch` asks for what this tile will need at its end, and the next one, `height` rows on, at its beginning.
struct FromZero {
  SHOAL_INLINE void prefetch(int64_t, int64_t, int64_t) const {}
  template <class T>
  SHOAL_INLINE T begin(int64_t, int64_t) const {
    return T{};
  }
};

struct Store : FromZero {
  float* out;
  int64_t stride;
  Store(float* o, int64_t s) : out(o), stride(s) {}
  Store shifted(int64_t m, int64_t j) const { return {out + m * stride + j, stride}; }
  template <class T>
  SHOAL_INLINE void operator()(int64_t m, int64_t j, T sum) const {
    store(out + m * stride + j, sum);
  }
};

struct Scale : FromZero {  // times what is there already: a derivative becomes a gradient
  float* inout;
  int64_t stride;
  Scale(float* p, int64_t s) : inout(p), stride(s) {}
  Scale shifted(int64_t m, int64_t j) const { return {inout + m * stride + j, stride}; }
  template <class T>
  SHOAL_INLINE void operator()(int64_t m, int64_t j, T sum) const {
    float* p = inout + m * stride + j;
    store(p, load<T>(p) * sum);
  }
};

// Where an optimiser works: a layer, or the whole network, and its moments.
struct Place {
  float *weights, *first, *second;
  SHOAL_INLINE void prefetch(int64_t i) const {
    __builtin_prefetch(weights + i, 1);
    if (first) __builtin_prefetch(first + i, 1);
    if (second) __builtin_prefetch(second + i, 1);
  }
  Place shifted(int64_t i) const { return {weights + i, first ? first + i : nullptr, second ? second + i : nullptr}; }
};

Place place(const Net& net, int64_t offset) {
  return {net.weights + offset, net.slots[0] ? net.slots[0] + offset : nullptr,
          net.slots[1] ? net.slots[1] + offset : nullptr};
}

// Optimisers: `apply` updates the vector at offset `i` of its place, given its gradient.
struct SgdRule {
  Place at;
  float rate, decay;
  SgdRule(const Update& u, Place where) : at(where), rate(u.learning_rate), decay(u.weight_decay) {}
  template <class T>
  SHOAL_INLINE void apply(int64_t i, T gradient) const {
    const T w = load<T>(at.weights + i);
    store(at.weights + i, w - rate * (gradient + decay * w));
  }
};

struct MomentumRule {
  Place at;
  float rate, decay, momentum;
  MomentumRule(const Update& u, Place where)
      : at(where), rate(u.learning_rate), decay(u.weight_decay), momentum(u.momentum) {}
  template <class T>
  SHOAL_INLINE void apply(int64_t i, T gradient) const {
    const T w = load<T>(at.weights + i);
    const T v = momentum * load<T>(at.first + i) + (gradient + decay * w);
    store(at.first + i, v);
    store(at.weights + i, w - rate * v);
  }
};

struct AdamRule {
  Place at;
  float step, root, beta2, rest;  // rest is 1 - beta2
  float decay, shrink;            // decay goes into the gradient (adam), shrink into the weights (adamw)
  AdamRule(const Update& u, Place where)
      : at(where),
        step(u.adam_step),
        root(u.adam_root),
        beta2(u.beta2),
        rest(u.beta2_rest),
        decay(u.optimizer == Adam ? u.weight_decay : 0.0f),
        shrink(u.optimizer == AdamW ? 1.0f - u.learning_rate * u.weight_decay : 1.0f) {}
  template <class T>
  SHOAL_INLINE void apply(int64_t i, T gradient) const {
    constexpr float kKeep = 0.1f, kEpsilon = 1e-8f;  // 1 - beta1 is 0.1
    const T w = load<T>(at.weights + i);
    const T g = gradient + decay * w;
    const T m = load<T>(at.first + i), v = load<T>(at.second + i);
    const T m_new = m + kKeep * (g - m);
    const T v_new = beta2 * v + rest * g * g;
    store(at.first + i, m_new);
    store(at.second + i, v_new);
    store(at.weights + i, w * shrink - step * m_new / (sqrt(v_new) * root + kEpsilon));
  }
};

// A gradient summed over several blocks of rows: goes on from what earlier blocks left.
struct Continue {
  float* gradient;  // null: this is the first block
  int64_t stride;
  template <class T>
  SHOAL_INLINE T begin(int64_t m, int64_t j) const {
    return gradient ? load<T>(gradient + m * stride + j) : T{};
  }
};

struct Accumulate : Continue {  // more blocks will come
  float* out;
  SHOAL_INLINE void prefetch(int64_t m, int64_t j, int64_t height) const {
    __builtin_prefetch(out + (m + height) * stride + j, 1);
  }
  Accumulate(float* before, float* after, int64_t s) : Continue{before, s}, out(after) {}
  Accumulate shifted(int64_t m, int64_t j) const {
    const int64_t i = m * stride + j;
    return {gradient ? gradient + i : nullptr, out + i, stride};
  }
  template <class T>
  SHOAL_INLINE void operator()(int64_t m, int64_t j, T sum) const {
    store(out + m * stride + j, sum);
  }
};

template <class Rule>
struct Apply : Continue {  // the last block
  Rule rule;
  SHOAL_INLINE void prefetch(int64_t m, int64_t j, int64_t height) const {
    if (gradient) __builtin_prefetch(gradient + (m + height) * stride + j);
    rule.at.prefetch(m * stride + j);
  }
  Apply(float* before, const Rule& r, int64_t s) : Continue{before, s}, rule(r) {}
  Apply shifted(int64_t m, int64_t j) const {
    const int64_t i = m * stride + j;
    Apply other(gradient ? gradient + i : nullptr, rule, stride);
    other.rule.at = rule.at.shifted(i);
    return other;
  }
  template <class T>
  SHOAL_INLINE void operator()(int64_t m, int64_t j, T sum) const {
    rule.apply(m * stride + j, sum);
  }
};

}  // namespace
}  // namespace SHOAL_ISA
}  // namespace shoal

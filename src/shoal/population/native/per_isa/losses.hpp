// Losses: rows in lanes; outputs become their gradients in place.
#pragma once
#include "math.hpp"
#include "shared/kernel.hpp"

namespace shoal {
namespace SHOAL_ISA {
namespace {

template <bool Train>
double cross_entropy(const Batch& b, int64_t n, float* y, int64_t stride, float smoothing) {
  const float inverse_norm = 1.0f / b.norm, spread = smoothing / static_cast<float>(n);
  V total{};
  for (int64_t r = 0; r < b.rows; r += L) {
    float* column = y + r;
    const VI labels = *reinterpret_cast<const VI*>(b.labels + r);
    const V weight = load(b.weight + r);
    const V hit = (1.0f - smoothing) * load(b.label_weight + r);
    V top = load(column);
    for (int64_t o = 1; o < n; ++o) {
      const V value = load(column + o * stride);
      top = select(value <= top, top, value);  // a NaN wins, and stays
    }
    V all{}, wanted{};
    for (int64_t o = 0; o < n; ++o) {
      const V value = load(column + o * stride);
      const V share = select(labels == static_cast<int32_t>(o), hit, V{}) + spread * b.class_weight[o];
      wanted += share * (value - top);
      const V e = exp(value - top);
      all += e;
      if constexpr (Train) store(column + o * stride, e);
    }
    const V mass = hit + spread * b.class_weight_sum;
    const VI real = weight > 0.0f;
    total += select(real, weight * (mass * log(all) - wanted), V{});
    if constexpr (Train) {
      const V scale = weight * inverse_norm, probability = mass / all;
      for (int64_t o = 0; o < n; ++o) {
        const V share = select(labels == static_cast<int32_t>(o), hit, V{}) + spread * b.class_weight[o];
        const V gradient = (load(column + o * stride) * probability - share) * scale;
        store(column + o * stride, select(real, gradient, V{}));
      }
    }
  }
  return sum(total);
}

template <bool Train, int Kind>
double elementwise(const Batch& b, int64_t n, float* y, int64_t stride) {
  const float inverse_norm = 1.0f / b.norm, share = 1.0f / static_cast<float>(n);
  V total{};
  for (int64_t r = 0; r < b.rows; r += L) {
    const V weight = load(b.weight + r);
    const VI real = weight > 0.0f;
    V row{};
    for (int64_t o = 0; o < n; ++o) {
      float* p = y + o * stride + r;
      const V value = load(p), target = load(b.targets + o * b.row_stride + r);
      V gradient;
      if constexpr (Kind == SquaredError) {
        const V error = value - target;
        row += error * error;
        gradient = 2.0f * error;
      } else {
        const V e = exp(-abs(value)), inverse = 1.0f / (1.0f + e);
        row += select(value < 0.0f, V{}, value) - value * target + log(1.0f + e);
        gradient = select(value < 0.0f, e * inverse, inverse) - target;
      }
      if constexpr (Train) store(p, select(real, gradient * (weight * (share * inverse_norm)), V{}));
    }
    total += select(real, weight * (row * share), V{});
  }
  return sum(total);
}

template <bool Train>
double loss_of(const Batch& batch, int64_t n_outputs, float* outputs, int64_t stride, float smoothing) {
  switch (batch.loss) {
    case CrossEntropy: return cross_entropy<Train>(batch, n_outputs, outputs, stride, smoothing);
    case BinaryCrossEntropy: return elementwise<Train, BinaryCrossEntropy>(batch, n_outputs, outputs, stride);
    default: return elementwise<Train, SquaredError>(batch, n_outputs, outputs, stride);
  }
}

}  // namespace
}  // namespace SHOAL_ISA
}  // namespace shoal

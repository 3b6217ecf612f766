// The shape of a network, and where its numbers lie in the kernel's own form.
#pragma once
#include <cstdint>

#include "shared/inline.hpp"

namespace shoal {

constexpr int64_t kLine = 16;  // floats in a 64-byte cache line: every packed row starts on one

// Floats from one packed row to the next. An even number of lines would map the rows of a column onto few cache sets.
SHOAL_INLINE int64_t stride_for(int64_t width) {
  int64_t lines = (width + kLine - 1) / kLine;
  if (lines >= 4 && lines % 2 == 0) ++lines;
  return lines * kLine;
}

SHOAL_INLINE int64_t round_up(int64_t n, int64_t multiple) { return (n + multiple - 1) / multiple * multiple; }

// A network in the kernel's own form. Hidden layer l is a (fan_in + 1, stride) matrix whose last row is the bias;
// the output layer is stored transposed, (outputs, stride), with the bias in column fan_in. Padding is zero, always.
struct Shape {
  int n_layers;  // weight layers: hidden layers + 1
  int activation;
  const int64_t* dims;  // fan_in, widths..., outputs

  SHOAL_INLINE int64_t inputs() const { return dims[0]; }
  SHOAL_INLINE int64_t outputs() const { return dims[n_layers]; }
  SHOAL_INLINE int64_t last_width() const { return dims[n_layers - 1]; }
  SHOAL_INLINE int64_t output_stride() const { return stride_for(last_width() + 1); }
  SHOAL_INLINE int64_t packed_floats() const {
    int64_t total = outputs() * output_stride();
    for (int l = 0; l + 1 < n_layers; ++l) total += (dims[l] + 1) * stride_for(dims[l + 1]);
    return total;
  }
};

}  // namespace shoal

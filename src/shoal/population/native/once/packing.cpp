#include "packing.hpp"

namespace shoal {
namespace {

template <bool In, class Flat>
void repack(const Shape& s, Flat* flat, float* packed) {
  const auto copy = [](Flat& a, float& b) {
    if constexpr (In)
      b = a;
    else
      a = b;
  };
  for (int l = 0; l + 1 < s.n_layers; ++l) {
    const int64_t rows = s.dims[l] + 1, width = s.dims[l + 1], stride = stride_for(width);
    for (int64_t i = 0; i < rows; ++i, flat += width, packed += stride)
      for (int64_t j = 0; j < width; ++j) copy(flat[j], packed[j]);
  }
  const int64_t rows = s.last_width() + 1, outputs = s.outputs(), stride = s.output_stride();
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t o = 0; o < outputs; ++o) copy(flat[i * outputs + o], packed[o * stride + i]);
}

}  // namespace

void pack(const Shape& s, const float* flat, float* packed) { repack<true>(s, flat, packed); }
void unpack(const Shape& s, float* flat, const float* packed) { repack<false>(s, flat, const_cast<float*>(packed)); }

const float* delivered(const MemberRecord& r, const State& state, int64_t i) {
  if (r.patience > 0 && state.best_epoch[i] > 0) return state.slots + r.slots + r.optimizer_slots * r.slot_size;
  return state.parameters + r.parameters;
}

// x - x is zero for numbers, and NaN for infinity and NaN.
bool finite(const Net& net) {
  const int64_t count = net.shape.packed_floats();  // a multiple of a cache line
  float sums[kLine] = {};
  for (int64_t i = 0; i < count; i += kLine)
    for (int64_t j = 0; j < kLine; ++j) sums[j] += net.weights[i + j] - net.weights[i + j];
  float total = 0;
  for (float sum : sums) total += sum;
  return total == 0;
}

}  // namespace shoal

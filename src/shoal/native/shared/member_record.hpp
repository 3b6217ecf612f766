// What a member is, field for field as shoal/engines/program.py writes it, and the shapes that follow from it.
#pragma once
#include <cstdint>

// Never emitted on its own. Kernels are compiled for several instruction sets, and the linker keeps one copy of an inline
// function: it could be one that this machine cannot run.
#define SHOAL_INLINE inline __attribute__((always_inline))

namespace shoal {

enum Activation : int32_t {
  Identity, Sigmoid, Tanh, Relu, Elu, Selu, Gelu, LeakyRelu, Hardshrink, Mish, ActivationCount
};
enum Optimizer : int32_t { Sgd, Adam, AdamW, OptimizerCount };
enum Schedule : int32_t { Constant, Cosine, ScheduleCount };
enum Init : int32_t { TorchInit, GlorotInit, InitCount };
enum Loss : int32_t { CrossEntropy, BinaryCrossEntropy, SquaredError, LossCount };
enum Status : uint8_t { Active, Finished, Stopped, Diverged };

struct Recipe {
  int64_t dims_start, features_start, parameters, slots, slot_size, batch_size;
  uint64_t seed;
  int64_t epochs, patience;
  int32_t n_layers, activation, optimizer, init, schedule, optimizer_slots;
  double learning_rate, weight_decay, momentum, dropout, warmup, clip, label_smoothing;
};
static_assert(sizeof(Recipe) == 9 * 8 + 6 * 4 + 7 * 8, "program.py's RECIPE must match");

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
  int n_layers;         // weight layers: hidden layers + 1
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

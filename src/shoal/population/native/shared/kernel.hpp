// The arithmetic of one network on one batch. Compiled once per instruction set; the driver picks a table at run time.
#pragma once
#include "shared/codes.hpp"
#include "shared/shape.hpp"
#include "shared/team.hpp"

namespace shoal {

// Rows that go through the whole network together, so that their activations stay in the fast caches.
constexpr int64_t kBlockRows = 64;

// Where the weights are too large for these caches, each block of rows fetches them again: then it has more rows.
constexpr int64_t kLargeFloats = 1 << 18, kLargeBlockRows = 256;
SHOAL_INLINE int64_t block_rows(const Shape& s) {
  return s.packed_floats() < kLargeFloats ? kBlockRows : kLargeBlockRows;
}

struct Batch {
  const float* X;  // (rows, stride): the columns, then a 1, then zeros
  int64_t stride;
  int64_t rows;
  int64_t row_stride;         // rows rounded up to a cache line: `weight` and the like are padded with zeros up to it
  const int32_t* labels;      // (row_stride,), cross-entropy
  const float* targets;       // (outputs, row_stride), the other losses
  const float* weight;        // (row_stride,): above zero for real rows
  const float* label_weight;  // (row_stride,): class weight of each row's label
  const float* class_weight;  // (outputs,)
  float class_weight_sum;
  float norm;  // what the sum of losses is divided by
  int loss;
};

// One update. Everything that depends on the step is computed by the driver, in double precision.
struct Update {
  int optimizer;
  float learning_rate, weight_decay, momentum;
  float adam_step, adam_root;  // learning_rate / (1 - beta1^t), 1 / sqrt(1 - beta2^t)
  float beta2, beta2_rest;     // of adam's second moment, and 1 - beta2
  float clip, label_smoothing;
  float dropout_scale;        // 1 / (1 - rate)
  int32_t dropout_threshold;  // of 2^24; 0: no dropout
  uint64_t seed;
  int64_t step;
  bool (*give_up)(const void*);  // asked between blocks of a large batch, before anything is updated
  const void* asked;
};

struct Net {
  Shape shape;
  float* weights;
  float* slots[2];
  float* gradient;     // used with clipping, and for batches of more than one block
  int64_t block_rows;  // as `block_rows` says: rows of a batch that are trained on together
};

struct Kernel {
  const char* name;
  int lanes;
  // Floats of scratch memory (64-byte aligned, zeroed once) for batches of up to `rows` rows and so many threads.
  int64_t (*scratch_floats)(const Shape&, int64_t rows, int threads);
  // One update; answers the sum of weighted losses before it. Nothing is updated when it was told to give up.
  double (*step)(const Net&, const Batch&, const Update&, float* scratch, const Team&);
  // Outputs of a batch of at most kBlockRows rows, (outputs, row_stride), somewhere in scratch.
  const float* (*forward)(const Net&, const Batch&, float* scratch, const Team&);
  // Sum of weighted losses of outputs as `forward` gives them.
  double (*loss)(const Shape&, const Batch&, const float* outputs);
};

const Kernel* kernel_baseline();
const Kernel* kernel_avx2();
const Kernel* kernel_avx512();
const Kernel* kernel_wide();  // the 16-lane code on any machine, for tests

}  // namespace shoal

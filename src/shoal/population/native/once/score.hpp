// Loss and score of a network over many batches.
#pragma once
#include <cstdint>

#include "problem.hpp"
#include "shared/kernel.hpp"
#include "shared_batch.hpp"

namespace shoal {

struct Score {
  double loss = 0, norm = 0, hits = 0;
  void add(const Kernel& kernel, const Net& net, const SharedBatch& shared, const Batch& batch, float* scratch,
           const Team& team);
  double mean_loss() const { return loss / norm; }
  // Accuracy, or R2 given the mean square of the targets about their means.
  double score(int kind, int64_t rows, int64_t outputs, double variance) const;
};

// Mean square of the targets of some rows (null: all) about each output's mean.
double target_variance(const Networks& nets, const Data& data, const int64_t* rows, int64_t count);

}  // namespace shoal

// Many networks over many rows: who trains what, in which order, on which thread.
#pragma once
#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "shared/kernel.hpp"

namespace shoal {

// Kernels that are compiled in and run on this machine, the fastest first; the one for tests comes last.
std::vector<const Kernel*> usable_kernels();
// The kernel of that name ("": the fastest). Throws std::invalid_argument if there is none.
const Kernel& find_kernel(const std::string& name);

struct Networks {
  const Recipe* recipes;
  int64_t count;
  const int64_t* dims;
  const int64_t* features;
  int64_t n_features, n_outputs;
  int loss;
  const float* class_weight;  // null: all one

  Shape shape(int64_t i) const {
    return {recipes[i].n_layers, recipes[i].activation, dims + recipes[i].dims_start};
  }
};

struct Rows {
  const int64_t *train, *train_start;
  const float* weight;  // null: all one
  const int64_t *valid, *valid_start;
  const int64_t* split;
  bool shuffle;
  const uint64_t* order;
  const int64_t* horizon;
};

struct Table {
  const float* X;
  int64_t n_rows;
  const int32_t* labels;
  const float* targets;
};

struct State {
  float *parameters, *slots;
  int64_t *steps, *epochs, *best_epoch;
  double* best_loss;
  uint8_t* status;
};

struct Work {
  const int64_t *which, *until;
  int64_t count, span;
  double *loss, *valid_loss, *valid_score;  // (count, span)
};

// Called from the calling thread every few tens of milliseconds with the member-epochs done; true: stop.
using Poll = std::function<bool(int64_t)>;

// True when every member got where it should, false when told to stop. Members always stand at the end of an epoch.
bool train(const Kernel&, const Networks&, const Table&, const Rows&, const State&, const Work&, int threads, const Poll&);

void predict(const Kernel&, const Networks&, const Table&, const State&, const int64_t* which, int64_t count, float* out,
             int threads, const Poll&);

void evaluate(const Kernel&, const Networks&, const Table&, const State&, const int64_t* which, int64_t count,
              double* loss, double* score, int threads, const Poll&);

void draw(const Networks&, float* parameters, int threads);

// Bytes that one thread of `train` needs at most.
int64_t thread_bytes(const Networks&, const int64_t* batch_rows);

}  // namespace shoal

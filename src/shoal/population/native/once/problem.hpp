// What a call of the kernel is about: networks, their numbers, rows. Pointers into arrays of Python's, checked before.
#pragma once
#include <cstdint>

#include "shared/member_record.hpp"
#include "shared/shape.hpp"

namespace shoal {

struct Networks {
  const MemberRecord* records;
  int64_t count;
  const int64_t* dims;
  const int64_t* features;
  int64_t n_features, n_outputs;
  int loss;
  const float* class_weight;  // null: all one

  Shape shape(int64_t i) const { return {records[i].n_layers, records[i].activation, dims + records[i].dims_start}; }
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

struct Data {
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

}  // namespace shoal

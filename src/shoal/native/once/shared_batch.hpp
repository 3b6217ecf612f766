// The batch that members share.
#pragma once
#include <cstdint>

#include "arena.hpp"
#include "problem.hpp"
#include "shared/kernel.hpp"

namespace shoal {

// A batch of rows gathered once and used by every member of a group.
class SharedBatch {
 public:
  // `columns` (null: all) are what the members see. Call again for each group.
  void prepare(const Networks& nets, const Table& table, const int64_t* columns, int64_t n_columns, int64_t capacity);
  // Rows rows[0..count); `weights` (null: all one) are theirs. With `order`, rows[order[i]] instead of rows[i].
  const Batch& gather(const int64_t* rows, const float* weights, const int64_t* order, int64_t first, int64_t count);
  double norm() const { return norm_; }

 private:
  double set_target(int64_t row, int64_t i, int64_t row_stride);
  const Networks* nets_ = nullptr;
  const Table* table_ = nullptr;
  const int64_t* columns_ = nullptr;
  int64_t n_columns_ = 0, stride_ = 0, capacity_ = 0;
  Arena arena_;
  float *X_ = nullptr, *weight_ = nullptr, *label_weight_ = nullptr, *targets_ = nullptr, *class_weight_ = nullptr;
  int32_t* labels_ = nullptr;
  float class_weight_sum_ = 0;
  double norm_ = 0;
  Batch batch_{};
};

}  // namespace shoal

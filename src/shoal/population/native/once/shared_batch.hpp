// The batch that members share.
#pragma once
#include <cstdint>
#include <cstring>

#include "arena.hpp"
#include "problem.hpp"
#include "shared/kernel.hpp"

namespace shoal {

// A batch of rows gathered once and used by every member of a group.
class SharedBatch {
 public:
  // `columns` (null: all) are what the members see. Call again for each group.
  void prepare(const Networks& nets, const Data& data, const int64_t* columns, int64_t n_columns, int64_t capacity);
  // Rows rows[0..count); `weights` (null: all one) are theirs. With `order`, rows[order[i]] instead of rows[i].
  const Batch& gather(const int64_t* rows, const float* weights, const int64_t* order, int64_t first, int64_t count,
                      const Team& team = kAlone);
  double norm() const { return norm_; }

 private:
  void copy_columns(int64_t row, int64_t i);
  void copy_together(const int64_t* rows, const int64_t* order, int64_t first, int64_t count, const Team& team);
  double set_target(int64_t row, int64_t i, int64_t row_stride);
  const Networks* nets_ = nullptr;
  const Data* data_ = nullptr;
  const int64_t* columns_ = nullptr;
  int64_t n_columns_ = 0, stride_ = 0, capacity_ = 0;
  Arena arena_;
  float *X_ = nullptr, *weight_ = nullptr, *label_weight_ = nullptr, *targets_ = nullptr, *class_weight_ = nullptr;
  int32_t* labels_ = nullptr;
  float class_weight_sum_ = 0;
  double norm_ = 0;
  Batch batch_{};
};

inline void SharedBatch::copy_columns(int64_t row, int64_t i) {
  const float* source = data_->X + row * nets_->n_features;
  float* target = X_ + i * stride_;
  if (columns_)
    for (int64_t j = 0; j < n_columns_; ++j) target[j] = source[columns_[j]];
  else
    std::memcpy(target, source, n_columns_ * sizeof(float));
}

inline double SharedBatch::set_target(int64_t row, int64_t i, int64_t row_stride) {
  if (nets_->loss == CrossEntropy) {
    labels_[i] = data_->labels ? data_->labels[row] : 0;
    label_weight_[i] = class_weight_[labels_[i]];
    return static_cast<double>(weight_[i]) * label_weight_[i];
  }
  if (data_->targets)
    for (int64_t o = 0; o < nets_->n_outputs; ++o)
      targets_[o * row_stride + i] = data_->targets[row * nets_->n_outputs + o];
  return weight_[i];
}

// In the header, so that a walk over all rows in order costs nothing for the pointers that are null there.
inline const Batch& SharedBatch::gather(const int64_t* rows, const float* weights, const int64_t* order, int64_t first,
                                        int64_t count, const Team& team) {
  const int64_t row_stride = round_up(count, kLine);
  const bool together = team.threads > 1;
  if (together) copy_together(rows, order, first, count, team);
  double norm = 0;
  for (int64_t i = 0; i < count; ++i) {
    const int64_t position = order ? order[first + i] : first + i;
    const int64_t row = rows ? rows[position] : position;
    if (!together) copy_columns(row, i);
    weight_[i] = weights ? weights[position] : 1.0f;
    norm += set_target(row, i, row_stride);
  }
  for (int64_t i = count; i < row_stride; ++i) {
    weight_[i] = 0;
    if (nets_->loss == CrossEntropy) labels_[i] = 0;
  }
  batch_ = {X_,
            stride_,
            count,
            row_stride,
            labels_,
            targets_,
            weight_,
            label_weight_,
            class_weight_,
            class_weight_sum_,
            static_cast<float>(norm),
            nets_->loss};
  norm_ = norm;
  return batch_;
}

}  // namespace shoal

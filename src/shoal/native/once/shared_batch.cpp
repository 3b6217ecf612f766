#include "shared_batch.hpp"

#include <cstring>

namespace shoal {

void SharedBatch::prepare(const Networks& nets, const Table& table, const int64_t* columns, int64_t n_columns,
                          int64_t capacity) {
  nets_ = &nets;
  table_ = &table;
  columns_ = columns;
  n_columns_ = n_columns;
  stride_ = stride_for(n_columns + 1);
  capacity_ = round_up(capacity, kLine);
  const int64_t side = capacity_ * (nets.loss == CrossEntropy ? 3 : 1 + nets.n_outputs);
  float* memory = arena_.reserve(capacity_ * stride_ + side + nets.n_outputs);
  X_ = memory;
  weight_ = X_ + capacity_ * stride_;
  label_weight_ = targets_ = weight_ + capacity_;
  labels_ = reinterpret_cast<int32_t*>(label_weight_ + capacity_);
  class_weight_ = memory + capacity_ * stride_ + side;
  class_weight_sum_ = 0;
  for (int64_t o = 0; o < nets.n_outputs; ++o) {
    class_weight_[o] = nets.class_weight ? nets.class_weight[o] : 1.0f;
    class_weight_sum_ += class_weight_[o];
  }
  for (int64_t r = 0; r < capacity_; ++r) {  // the column of ones and the padding are written once
    float* row = X_ + r * stride_;
    for (int64_t j = n_columns; j < stride_; ++j) row[j] = j == n_columns ? 1.0f : 0.0f;
  }
}

const Batch& SharedBatch::gather(const int64_t* rows, const float* weights, const int64_t* order, int64_t first,
                                 int64_t count) {
  const int64_t row_stride = round_up(count, kLine), width = nets_->n_features;
  double norm = 0;
  for (int64_t i = 0; i < count; ++i) {
    const int64_t position = order ? order[first + i] : first + i;
    const int64_t row = rows ? rows[position] : position;
    const float* source = table_->X + row * width;
    float* target = X_ + i * stride_;
    if (columns_)
      for (int64_t j = 0; j < n_columns_; ++j) target[j] = source[columns_[j]];
    else
      std::memcpy(target, source, n_columns_ * sizeof(float));
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

double SharedBatch::set_target(int64_t row, int64_t i, int64_t row_stride) {
  if (nets_->loss == CrossEntropy) {
    labels_[i] = table_->labels ? table_->labels[row] : 0;
    label_weight_[i] = class_weight_[labels_[i]];
    return static_cast<double>(weight_[i]) * label_weight_[i];
  }
  if (table_->targets)
    for (int64_t o = 0; o < nets_->n_outputs; ++o)
      targets_[o * row_stride + i] = table_->targets[row * nets_->n_outputs + o];
  return weight_[i];
}

}  // namespace shoal

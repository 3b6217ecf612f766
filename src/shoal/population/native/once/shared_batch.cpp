#include "shared_batch.hpp"

#include <algorithm>

namespace shoal {

void SharedBatch::prepare(const Networks& nets, const Data& data, const int64_t* columns, int64_t n_columns,
                          int64_t capacity) {
  nets_ = &nets;
  data_ = &data;
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

void SharedBatch::copy_together(const int64_t* rows, const int64_t* order, int64_t first, int64_t count,
                                const Team& team) {
  const auto copy = [&](int64_t part) {
    for (int64_t i = part * kLine; i < std::min(count, (part + 1) * kLine); ++i) {
      const int64_t position = order ? order[first + i] : first + i;
      copy_columns(rows ? rows[position] : position, i);
    }
  };
  const Part part = [](const void* work, int, int64_t number) { (*static_cast<const decltype(copy)*>(work))(number); };
  team.run(team.self, (count + kLine - 1) / kLine, part, &copy);
}

}  // namespace shoal

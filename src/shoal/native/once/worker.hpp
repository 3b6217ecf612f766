// Aligned memory, a pool for one call, and the batch that members share.
#pragma once
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <functional>
#include <mutex>
#include <new>
#include <thread>
#include <vector>

#if defined(__SSE2__)
#include <xmmintrin.h>
#endif

#include "trainer.hpp"

namespace shoal {

// 64-byte aligned floats, zeroed. Grows, never shrinks.
class Arena {
 public:
  Arena() = default;
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;
  ~Arena() { std::free(memory_); }
  float* reserve(int64_t floats) {
    if (floats > size_) {
      std::free(memory_);
      memory_ = nullptr;
      size_ = 0;
      const size_t bytes = static_cast<size_t>(round_up(floats, kLine)) * sizeof(float);
      memory_ = static_cast<float*>(std::aligned_alloc(64, bytes));
      if (!memory_) throw std::bad_alloc();
      std::memset(memory_, 0, bytes);
      size_ = floats;
    }
    return memory_;
  }

 private:
  float* memory_ = nullptr;
  int64_t size_ = 0;
};

// Numbers too small to be normal are as good as zero, and a hundred times slower: flush them, the same on every thread.
inline void flush_denormals() {
#if defined(__SSE2__)
  _mm_setcsr(_mm_getcsr() | 0x8040);
#elif defined(__aarch64__)
  uint64_t control;
  asm volatile("mrs %0, fpcr" : "=r"(control));
  asm volatile("msr fpcr, %0" : : "r"(control | (1ull << 24)));
#endif
}

// Runs task(thread, number) for every number below `count`, taken in order from an atomic counter. The calling thread
// only polls, so that it can listen to signals. The first exception stops the rest and is thrown again here.
inline bool run_tasks(int64_t count, int threads, std::atomic<bool>& stop, const std::atomic<int64_t>& done,
                      const Poll& poll, const std::function<void(int, int64_t)>& task) {
  std::atomic<int64_t> next{0};
  std::mutex mutex;
  std::condition_variable ended;
  int running = 0;
  std::exception_ptr error;
  const auto work = [&](int thread) {
    flush_denormals();
    try {
      for (int64_t i; !stop.load(std::memory_order_relaxed) && (i = next.fetch_add(1)) < count;) task(thread, i);
    } catch (...) {
      const std::lock_guard<std::mutex> lock(mutex);
      if (!error) error = std::current_exception();
      stop = true;
    }
    const std::lock_guard<std::mutex> lock(mutex);
    --running;
    ended.notify_all();
  };
  std::vector<std::thread> pool;
  const auto join = [&] { for (auto& thread : pool) thread.join(); };
  try {
    for (int t = 0; t < threads && t < count; ++t) {
      { const std::lock_guard<std::mutex> lock(mutex); ++running; }
      pool.emplace_back(work, t);
    }
    std::unique_lock<std::mutex> lock(mutex);
    while (running) {
      ended.wait_for(lock, std::chrono::milliseconds(40));
      if (!running) break;
      lock.unlock();
      if (poll && poll(done.load(std::memory_order_relaxed))) stop = true;
      lock.lock();
    }
  } catch (...) {
    stop = true;
    join();
    throw;
  }
  join();
  if (error) std::rethrow_exception(error);
  return !stop.load();
}

// A batch of rows gathered once and used by every member of a group.
class SharedBatch {
 public:
  // `columns` (null: all) are what the members see. Call again for each group.
  void prepare(const Networks& nets, const Table& table, const int64_t* columns, int64_t n_columns, int64_t capacity) {
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

  // Rows rows[0..count); `weights` (null: all one) are theirs. With `order`, rows[order[i]] instead of rows[i].
  const Batch& gather(const int64_t* rows, const float* weights, const int64_t* order, int64_t first, int64_t count) {
    const int64_t row_stride = round_up(count, kLine), width = table_width();
    double norm = 0;
    for (int64_t i = 0; i < count; ++i) {
      const int64_t position = order ? order[first + i] : first + i;
      const int64_t row = rows ? rows[position] : position;
      const float* source = table_->X + row * width;
      float* target = X_ + i * stride_;
      if (columns_) for (int64_t j = 0; j < n_columns_; ++j) target[j] = source[columns_[j]];
      else std::memcpy(target, source, n_columns_ * sizeof(float));
      weight_[i] = weights ? weights[position] : 1.0f;
      norm += set_target(row, i, row_stride);
    }
    for (int64_t i = count; i < row_stride; ++i) {
      weight_[i] = 0;
      if (nets_->loss == CrossEntropy) labels_[i] = 0;
    }
    batch_ = {X_, stride_, count, row_stride, labels_, targets_, weight_, label_weight_, class_weight_,
              class_weight_sum_, static_cast<float>(norm), nets_->loss};
    norm_ = norm;
    return batch_;
  }
  double norm() const { return norm_; }

 private:
  int64_t table_width() const { return nets_->n_features; }
  double set_target(int64_t row, int64_t i, int64_t row_stride) {
    if (nets_->loss == CrossEntropy) {
      labels_[i] = table_->labels ? table_->labels[row] : 0;
      label_weight_[i] = class_weight_[labels_[i]];
      return static_cast<double>(weight_[i]) * label_weight_[i];
    }
    if (table_->targets)
      for (int64_t o = 0; o < nets_->n_outputs; ++o) targets_[o * row_stride + i] = table_->targets[row * nets_->n_outputs + o];
    return weight_[i];
  }

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

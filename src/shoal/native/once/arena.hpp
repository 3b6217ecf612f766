// Memory for vectors.
#pragma once
#include <cstdint>
#include <cstring>
#include <memory>
#include <new>

#include "shared/shape.hpp"

namespace shoal {

// 64-byte aligned floats, zeroed. Grows, never shrinks.
class Arena {
 public:
  float* reserve(int64_t floats) {
    if (floats > size_) {
      memory_.reset();
      size_ = 0;
      const size_t bytes = static_cast<size_t>(round_up(floats, kLine)) * sizeof(float);
      memory_.reset(static_cast<float*>(::operator new(bytes, kAlignment)));
      std::memset(memory_.get(), 0, bytes);
      size_ = floats;
    }
    return memory_.get();
  }

 private:
  static constexpr std::align_val_t kAlignment{kLine * sizeof(float)};
  struct Release {
    void operator()(float* memory) const { ::operator delete(memory, kAlignment); }
  };
  std::unique_ptr<float, Release> memory_;
  int64_t size_ = 0;
};

}  // namespace shoal

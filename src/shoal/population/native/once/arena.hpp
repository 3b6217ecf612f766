// Memory for vectors.
#pragma once
#include <cstdint>
#include <cstring>
#include <memory>
#include <new>

#if defined(__linux__)
#include <sys/mman.h>
#endif

#include "shared/shape.hpp"

namespace shoal {

// 64-byte aligned floats, zeroed. Grows, never shrinks.
class Arena {
 public:
  float* reserve(int64_t floats) {
    if (floats > size_) {
      memory_.reset();
      size_ = 0;
      const size_t wanted = static_cast<size_t>(floats) * sizeof(float);
      const size_t alignment = wanted >= kLargePage / 4 ? kLargePage : kLine * sizeof(float);
      const size_t bytes = (wanted + alignment - 1) / alignment * alignment;
      const std::align_val_t aligned{alignment};
      memory_ = {static_cast<float*>(::operator new(bytes, aligned)), Release{aligned}};
#if defined(MADV_HUGEPAGE)
      if (alignment == kLargePage) madvise(memory_.get(), bytes, MADV_HUGEPAGE);
#endif
      std::memset(memory_.get(), 0, bytes);
      size_ = floats;
    }
    return memory_.get();
  }

 private:
  // Rows of weights are further apart than small pages, so that every row would need an entry of its own in the TLB:
  // what is not small lies in large pages, where the system has them.
  static constexpr size_t kLargePage = 2 << 20;
  struct Release {
    std::align_val_t alignment;
    Release() : alignment(std::align_val_t{1}) {}  // of nothing
    explicit Release(std::align_val_t given) : alignment(given) {}
    void operator()(float* memory) const { ::operator delete(memory, alignment); }
  };
  std::unique_ptr<float, Release> memory_;
  int64_t size_ = 0;
};

}  // namespace shoal

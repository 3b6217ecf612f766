// Random numbers that depend on keys alone: never on threads, neighbours or the order of work.
#pragma once
#include <cstdint>

namespace shoal {

// The order of `count` rows in one epoch (Fisher-Yates).
void permutation(uint64_t key, int64_t epoch, int64_t count, int64_t* order);

// PyTorch's CPU generator, so that a member starts with the very numbers nn.Linear would draw.
class MersenneTwister {
 public:
  explicit MersenneTwister(uint32_t seed);
  // Uniform in [low, high), with 24 random bits. PyTorch fuses the multiplication and the addition; so does a double,
  // in which the sum is exact.
  float uniform(float low, float high) {
    const double unit = static_cast<double>(next() & 0xFFFFFFu) * (1.0 / 16777216.0);
    return static_cast<float>(unit * static_cast<double>(high - low) + static_cast<double>(low));
  }

 private:
  static constexpr int kSize = 624, kMiddle = 397;
  uint32_t next() {
    if (position_ == kSize) refill();
    return ready_[position_++];
  }
  void refill();
  uint32_t state_[kSize], ready_[kSize];
  int position_ = kSize;
};

}  // namespace shoal

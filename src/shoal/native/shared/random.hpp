// Random numbers that depend on keys alone: never on threads, neighbours or the order of work.
#pragma once
#include <cstdint>

#include "shared/member_record.hpp"

namespace shoal {

SHOAL_INLINE uint64_t mix64(uint64_t z) {
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
  return z ^ (z >> 31);
}
constexpr uint64_t kGolden = 0x9E3779B97F4A7C15ull;
SHOAL_INLINE uint64_t splitmix64(uint64_t x) { return mix64(x + kGolden); }

SHOAL_INLINE uint32_t mix32(uint32_t x) {
  x ^= x >> 16;
  x *= 0x7feb352du;
  x ^= x >> 15;
  x *= 0x846ca68bu;
  return x ^ (x >> 16);
}

// The order of `count` rows in one epoch (Fisher-Yates).
inline void permutation(uint64_t key, int64_t epoch, int64_t count, int64_t* order) {
  for (int64_t i = 0; i < count; ++i) order[i] = i;
  uint64_t state = splitmix64(key ^ splitmix64(static_cast<uint64_t>(epoch)));
  for (int64_t i = count - 1; i > 0; --i) {
    state += kGolden;
    const uint64_t draw = mix64(state) >> 32;
    const int64_t j = static_cast<int64_t>((draw * static_cast<uint64_t>(i + 1)) >> 32);
    const int64_t kept = order[i];
    order[i] = order[j];
    order[j] = kept;
  }
}

// Which neurons of a layer are kept in one step. Row r, neuron j: kept(row_key(r), j).
struct DropoutKey {
  uint32_t low, high;
  SHOAL_INLINE DropoutKey(uint64_t seed, int64_t step, int layer) {
    const uint64_t key = splitmix64(splitmix64(splitmix64(seed) ^ static_cast<uint64_t>(step)) ^ static_cast<uint64_t>(layer));
    low = static_cast<uint32_t>(key);
    high = static_cast<uint32_t>(key >> 32);
  }
  SHOAL_INLINE uint32_t row(uint32_t r) const { return mix32(low + r * 0x9E3779B9u) ^ high; }
};
constexpr uint32_t kNeuronFactor = 0x85EBCA6Bu;

// PyTorch's CPU generator, so that a member starts with the very numbers nn.Linear would draw.
class MersenneTwister {
 public:
  explicit MersenneTwister(uint32_t seed) {
    state_[0] = seed;
    for (int i = 1; i < kSize; ++i) state_[i] = 1812433253u * (state_[i - 1] ^ (state_[i - 1] >> 30)) + static_cast<uint32_t>(i);
  }
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
  static uint32_t twist(uint32_t upper, uint32_t lower) {
    const uint32_t y = (upper & 0x80000000u) | (lower & 0x7fffffffu);
    return (y >> 1) ^ ((0u - (lower & 1u)) & 0x9908b0dfu);
  }
  // A whole block at a time: three loops without branches or short dependences, which compilers turn into vectors.
  void refill() {
    for (int i = 0; i < kSize - kMiddle; ++i) state_[i] = state_[i + kMiddle] ^ twist(state_[i], state_[i + 1]);
    for (int i = kSize - kMiddle; i < kSize - 1; ++i)
      state_[i] = state_[i + kMiddle - kSize] ^ twist(state_[i], state_[i + 1]);
    state_[kSize - 1] = state_[kMiddle - 1] ^ twist(state_[kSize - 1], state_[0]);
    for (int i = 0; i < kSize; ++i) {
      uint32_t y = state_[i];
      y ^= y >> 11;
      y ^= (y << 7) & 0x9d2c5680u;
      y ^= (y << 15) & 0xefc60000u;
      ready_[i] = y ^ (y >> 18);
    }
    position_ = 0;
  }
  uint32_t state_[kSize], ready_[kSize];
  int position_ = kSize;
};

}  // namespace shoal

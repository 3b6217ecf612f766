#include "random.hpp"

#include "shared/hash.hpp"

namespace shoal {
namespace {

uint32_t twist(uint32_t upper, uint32_t lower) {
  const uint32_t y = (upper & 0x80000000u) | (lower & 0x7fffffffu);
  return (y >> 1) ^ ((0u - (lower & 1u)) & 0x9908b0dfu);
}

}  // namespace

void permutation(uint64_t key, int64_t epoch, int64_t count, int64_t* order) {
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

MersenneTwister::MersenneTwister(uint32_t seed) {
  state_[0] = seed;
  for (int i = 1; i < kSize; ++i)
    state_[i] = 1812433253u * (state_[i - 1] ^ (state_[i - 1] >> 30)) + static_cast<uint32_t>(i);
}

// A whole block at a time: three loops without branches or short dependences, which compilers turn into vectors.
void MersenneTwister::refill() {
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

}  // namespace shoal

// Hashes of keys, from which random numbers are made that never depend on threads, neighbours or the order of work.
#pragma once
#include <cstdint>

#include "shared/inline.hpp"

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

// Which neurons of a layer are kept in one step. Row r, neuron j: kept(row_key(r), j).
struct DropoutKey {
  uint32_t low, high;
  SHOAL_INLINE DropoutKey(uint64_t seed, int64_t step, int layer) {
    const uint64_t key =
        splitmix64(splitmix64(splitmix64(seed) ^ static_cast<uint64_t>(step)) ^ static_cast<uint64_t>(layer));
    low = static_cast<uint32_t>(key);
    high = static_cast<uint32_t>(key >> 32);
  }
  SHOAL_INLINE uint32_t row(uint32_t r) const { return mix32(low + r * 0x9E3779B9u) ^ high; }
};
constexpr uint32_t kNeuronFactor = 0x85EBCA6Bu;

}  // namespace shoal

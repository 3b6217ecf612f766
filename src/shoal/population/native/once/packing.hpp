// A member's numbers, from the population's flat form to the kernel's and back.
#pragma once
#include <cstdint>

#include "problem.hpp"
#include "shared/kernel.hpp"

namespace shoal {

void pack(const Shape& s, const float* flat, float* packed);
void unpack(const Shape& s, float* flat, const float* packed);

// The weights that member `i` gives to the outside: its best ones, if it keeps them.
const float* delivered(const MemberRecord& r, const State& state, int64_t i);

// Whether all weights are finite.
bool finite(const Net& net);

}  // namespace shoal

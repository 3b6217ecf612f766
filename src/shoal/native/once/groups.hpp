// Which members are trained together, and in which order.
#pragma once
#include <cstdint>
#include <vector>

#include "problem.hpp"

namespace shoal {

constexpr int64_t kCacheFloats = 1 << 16;  // weights of a group that shares its batches: half of a small L2 cache

// Members that see the same rows in the same order with the same batch size: positions in Work.
using Group = std::vector<int64_t>;

// All members of `work`, the groups that take longest first.
std::vector<Group> make_groups(const Networks& nets, const Rows& rows, const State& state, const Work& work,
                               int threads);

}  // namespace shoal

// Which members are trained together, and in which order.
#pragma once
#include <cstdint>
#include <vector>

#include "problem.hpp"

namespace shoal {

// Floats of a group's weights that still leave room for its batches: half of a core's L2 cache, which the system is
// asked for.
int64_t cache_floats();

// Members that see the same rows in the same order with the same batch size: positions in Work.
using Group = std::vector<int64_t>;

// All members of `work`, the groups that take longest first.
std::vector<Group> make_groups(const Networks& nets, const Rows& rows, const State& state, const Work& work,
                               int threads);

// How many of the first groups all threads should train together, one after the other, before each thread takes groups
// of its own: those that would keep one thread busy while others have nothing left to do. Only members that are large
// enough are trained by several threads. The results are the same either way.
int64_t count_shared(const Networks& nets, const Rows& rows, const State& state, const Work& work,
                     const std::vector<Group>& groups, int threads);

}  // namespace shoal

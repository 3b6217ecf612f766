// Which kernels are compiled in, and which of them this machine runs.
#pragma once
#include <string>
#include <vector>

#include "shared/kernel.hpp"

namespace shoal {

// Kernels that are compiled in and run on this machine, the fastest first; the one for tests comes last.
std::vector<const Kernel*> usable_kernels();
// The kernel of that name ("": the fastest). Throws std::invalid_argument if there is none.
const Kernel& find_kernel(const std::string& name);

}  // namespace shoal

#include "isa.hpp"

#include <stdexcept>

namespace shoal {

std::vector<const Kernel*> usable_kernels() {
  std::vector<const Kernel*> found;
#if defined(SHOAL_X86)
  __builtin_cpu_init();
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  if (avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
      __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl"))
    found.push_back(kernel_avx512());
  if (avx2) found.push_back(kernel_avx2());
#endif
  found.push_back(kernel_baseline());
#if defined(SHOAL_WIDE)
  if (avx2) found.push_back(kernel_wide());
#endif
  return found;
}

const Kernel& find_kernel(const std::string& name) {
  const std::vector<const Kernel*> usable = usable_kernels();
  if (name.empty()) return *usable.front();
  std::string known;
  for (const Kernel* kernel : usable) {
    if (name == kernel->name) return *kernel;
    known += (known.empty() ? "" : ", ") + std::string(kernel->name);
  }
  throw std::invalid_argument("SHOAL_ISA must be one of " + known + " on this machine; got '" + name + "'");
}

}  // namespace shoal

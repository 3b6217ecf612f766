#include "groups.hpp"

#include <algorithm>
#include <numeric>
#include <tuple>

#if defined(__APPLE__)
#include <sys/sysctl.h>
#elif defined(__unix__)
#include <unistd.h>
#endif

namespace shoal {
namespace {

constexpr int64_t kLargestGroup = 16;

double flops(const Shape& s) {
  double total = 0;
  for (int l = 0; l < s.n_layers; ++l) total += static_cast<double>(s.dims[l] + 1) * s.dims[l + 1];
  return total;
}

// Bytes of a core's L2 cache; 0 where the system does not say.
int64_t level2_bytes() {
#if defined(__APPLE__)
  int64_t bytes = 0;
  size_t size = sizeof(bytes);
  return sysctlbyname("hw.l2cachesize", &bytes, &size, nullptr, 0) == 0 ? bytes : 0;
#elif defined(_SC_LEVEL2_CACHE_SIZE)
  return sysconf(_SC_LEVEL2_CACHE_SIZE);
#else
  return 0;
#endif
}

}  // namespace

int64_t cache_floats() {
  constexpr int64_t kLeast = 256 << 10, kMost = 4 << 20;  // bytes: a virtual machine may say anything
  static const int64_t bytes = std::min(kMost, std::max(kLeast, level2_bytes() / 2));
  return bytes / static_cast<int64_t>(sizeof(float));
}

std::vector<Group> make_groups(const Networks& nets, const Rows& rows, const State& state, const Work& work,
                               int threads) {
  const auto key = [&](int64_t k) {
    const int64_t i = work.which[k];
    const MemberRecord& r = nets.records[i];
    return std::make_tuple(rows.split[i], rows.order[i], r.batch_size, r.features_start, state.epochs[i]);
  };
  const auto floats = [&](int64_t k) {
    const MemberRecord& r = nets.records[work.which[k]];
    return nets.shape(work.which[k]).packed_floats() * (1 + r.optimizer_slots);
  };
  const auto cost = [&](int64_t k) {
    const int64_t i = work.which[k];
    const int64_t split = rows.split[i];
    const double steps = static_cast<double>(rows.train_start[split + 1] - rows.train_start[split]);
    return flops(nets.shape(i)) * steps * static_cast<double>(work.until[k] - state.epochs[i]);
  };
  std::vector<double> costs(work.count);
  for (int64_t k = 0; k < work.count; ++k) costs[k] = cost(k);
  std::vector<int64_t> order(work.count);
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
    const auto ka = key(a), kb = key(b);
    return ka != kb ? ka < kb : costs[a] > costs[b];
  });
  // Few members: a thread each matters more than a shared batch.
  const int64_t most = std::max<int64_t>(1, std::min(kLargestGroup, work.count / (8 * threads)));
  const int64_t cache = cache_floats();
  std::vector<Group> groups;
  int64_t size = 0;
  for (int64_t k : order) {
    const bool fits = !groups.empty() && static_cast<int64_t>(groups.back().size()) < most &&
                      key(groups.back().front()) == key(k) && size + floats(k) <= cache;
    if (!fits) {
      groups.emplace_back();
      size = 0;
    }
    groups.back().push_back(k);
    size += floats(k);
  }
  const auto total = [&](const Group& g) {
    double sum = 0;
    for (int64_t k : g) sum += costs[k];
    return sum;
  };
  std::stable_sort(groups.begin(), groups.end(), [&](const Group& a, const Group& b) { return total(a) > total(b); });
  return groups;
}

}  // namespace shoal

#include "groups.hpp"

#include <algorithm>
#include <functional>
#include <numeric>
#include <queue>
#include <tuple>

#include "shared/kernel.hpp"

#if defined(__APPLE__)
#include <sys/sysctl.h>
#elif defined(__unix__)
#include <unistd.h>
#endif

namespace shoal {
namespace {

constexpr int64_t kLargestGroup = 16;
constexpr double kLargeProducts = 1 << 20;  // multiplications of a block of rows on its way through a network
constexpr double kSharedSpeed = 0.85;       // of a thread that shares its work, against one that works alone

double multiplications(const Shape& s) {
  double total = 0;
  for (int l = 0; l < s.n_layers; ++l) total += static_cast<double>(s.dims[l] + 1) * s.dims[l + 1];
  return total;
}

// What training position k of `work` takes, in multiplications.
double cost_of(const Networks& nets, const Rows& rows, const State& state, const Work& work, int64_t k) {
  const int64_t i = work.which[k];
  const int64_t split = rows.split[i];
  const double steps = static_cast<double>(rows.train_start[split + 1] - rows.train_start[split]);
  return multiplications(nets.shape(i)) * steps * static_cast<double>(work.until[k] - state.epochs[i]);
}

// Until the last thread has done its groups, from `first` on, if each thread that is free takes the next one.
double time_of(const std::vector<double>& costs, int64_t first, int threads) {
  std::priority_queue<double, std::vector<double>, std::greater<double>> busy;
  for (int t = 0; t < threads; ++t) busy.push(0);
  double last = 0;
  for (size_t g = first; g < costs.size(); ++g) {
    const double ends = busy.top() + costs[g];
    busy.pop();
    busy.push(ends);
    last = std::max(last, ends);
  }
  return last;
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
  std::vector<double> costs(work.count);
  for (int64_t k = 0; k < work.count; ++k) costs[k] = cost_of(nets, rows, state, work, k);
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

int64_t count_shared(const Networks& nets, const Rows& rows, const State& state, const Work& work,
                     const std::vector<Group>& groups, int threads) {
  const auto large = [&](int64_t k) {
    const MemberRecord& r = nets.records[work.which[k]];
    const Shape shape = nets.shape(work.which[k]);
    const int64_t block = std::min(r.batch_size, block_rows(shape));
    return multiplications(shape) * static_cast<double>(block) >= kLargeProducts;
  };
  std::vector<double> costs;
  for (const Group& group : groups) {
    costs.push_back(0);
    for (int64_t k : group) costs.back() += cost_of(nets, rows, state, work, k);
  }
  int64_t best = 0;
  double shared = 0, least = time_of(costs, 0, threads);
  for (int64_t g = 0; g < std::min<int64_t>(threads, groups.size()); ++g) {
    if (threads == 1 || !std::all_of(groups[g].begin(), groups[g].end(), large)) break;
    shared += costs[g] / (threads * kSharedSpeed);
    const double total = shared + time_of(costs, g + 1, threads);
    if (total < least) {
      least = total;
      best = g + 1;
    }
  }
  return best;
}

}  // namespace shoal

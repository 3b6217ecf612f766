#include "groups.hpp"

#include <algorithm>
#include <numeric>
#include <tuple>

namespace shoal {
namespace {

constexpr int64_t kLargestGroup = 16;

double flops(const Shape& s) {
  double total = 0;
  for (int l = 0; l < s.n_layers; ++l) total += static_cast<double>(s.dims[l] + 1) * s.dims[l + 1];
  return total;
}

}  // namespace

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
  std::vector<Group> groups;
  int64_t size = 0;
  for (int64_t k : order) {
    const bool fits = !groups.empty() && static_cast<int64_t>(groups.back().size()) < most &&
                      key(groups.back().front()) == key(k) && size + floats(k) <= kCacheFloats;
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

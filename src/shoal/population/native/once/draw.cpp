// Initial weights.
#include <algorithm>
#include <cmath>

#include "driver.hpp"
#include "random.hpp"

namespace shoal {
namespace {

void draw_member(const MemberRecord& r, const Shape& s, float* flat) {
  MersenneTwister generator(static_cast<uint32_t>(r.seed));
  for (int l = 0; l < s.n_layers; ++l) {
    const int64_t fan_in = s.dims[l], fan_out = s.dims[l + 1];
    const double in = static_cast<double>(fan_in), out = static_cast<double>(fan_out);
    const bool glorot = r.init == GlorotInit;
    // The same steps as nn.init takes, so that the bounds round the same way.
    const double deviation = glorot ? std::sqrt(2.0 / (in + out)) : std::sqrt(2.0 / 6.0) / std::sqrt(in);
    const float bound = static_cast<float>(std::sqrt(3.0) * deviation);
    for (int64_t j = 0; j < fan_out; ++j)
      for (int64_t i = 0; i < fan_in; ++i) flat[i * fan_out + j] = generator.uniform(-bound, bound);
    const float bias = static_cast<float>(1 / std::sqrt(in));
    for (int64_t j = 0; j < fan_out; ++j) flat[fan_in * fan_out + j] = glorot ? 0.0f : generator.uniform(-bias, bias);
    flat += (fan_in + 1) * fan_out;
  }
}

}  // namespace

void draw(const Networks& nets, float* parameters, int threads) {
  std::atomic<bool> stop{false};
  std::atomic<int64_t> done{0};
  constexpr int64_t kMany = 64;  // members a task, so that taking one costs nothing
  run_tasks((nets.count + kMany - 1) / kMany, threads, stop, done, nullptr, [&](int, int64_t task) {
    for (int64_t i = task * kMany; i < std::min(nets.count, (task + 1) * kMany); ++i)
      draw_member(nets.records[i], nets.shape(i), parameters + nets.records[i].parameters);
  });
}

}  // namespace shoal

#include "score.hpp"

#include <limits>

namespace shoal {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

double count_hits(const Batch& b, int64_t n, const float* y) {
  int64_t right = 0;
  if (b.loss == CrossEntropy) {
    for (int64_t r = 0; r < b.rows; ++r) {
      int64_t best = 0;
      for (int64_t o = 1; o < n; ++o)
        if (y[o * b.row_stride + r] > y[best * b.row_stride + r]) best = o;
      right += best == b.labels[r];
    }
  } else if (b.loss == BinaryCrossEntropy) {
    for (int64_t o = 0; o < n; ++o)
      for (int64_t r = 0; r < b.rows; ++r)
        right += (y[o * b.row_stride + r] > 0) == (b.targets[o * b.row_stride + r] > 0.5f);
  }
  return static_cast<double>(right);
}

}  // namespace

void Score::add(const Kernel& kernel, const Net& net, const SharedBatch& shared, const Batch& batch, float* scratch,
                const Team& team) {
  const float* y = kernel.forward(net, batch, scratch, team);
  hits += count_hits(batch, net.shape.outputs(), y);
  loss += kernel.loss(net.shape, batch, y);
  norm += shared.norm();
}

double Score::score(int kind, int64_t rows, int64_t outputs, double variance) const {
  if (kind == SquaredError) return variance > 0 ? 1.0 - mean_loss() / variance : kNaN;
  return hits / (static_cast<double>(rows) * (kind == CrossEntropy ? 1 : outputs));
}

double target_variance(const Networks& nets, const Data& data, const int64_t* rows, int64_t count) {
  if (nets.loss != SquaredError || count == 0) return kNaN;
  double total = 0;
  for (int64_t o = 0; o < nets.n_outputs; ++o) {
    const auto value = [&](int64_t i) {
      return static_cast<double>(data.targets[(rows ? rows[i] : i) * nets.n_outputs + o]);
    };
    double mean = 0;
    for (int64_t i = 0; i < count; ++i) mean += value(i);
    mean /= static_cast<double>(count);
    for (int64_t i = 0; i < count; ++i) total += (value(i) - mean) * (value(i) - mean);
  }
  return total / (static_cast<double>(count) * nets.n_outputs);
}

}  // namespace shoal

// Networks that are not trained: predict and evaluate share the walk over members and rows.
#include <algorithm>
#include <memory>
#include <vector>

#include "driver.hpp"
#include "packing.hpp"
#include "score.hpp"

namespace shoal {
namespace {

constexpr int64_t kRange = 4096;  // rows of one task

// Memory of one thread.
struct Workspace {
  SharedBatch shared;
  Arena packed, scratch;
};

// Calls visit(position, first row, shared, batch, net, scratch) for chunks of rows; a task is one member x one range.
template <class Visit>
void visit_batches(const Kernel& kernel, const Networks& nets, const Data& data, const State& state,
                   const int64_t* which, int64_t count, int threads, const Poll& poll, const Visit& visit) {
  std::vector<std::unique_ptr<Workspace>> workspaces;
  for (int t = 0; t < threads; ++t) workspaces.push_back(std::make_unique<Workspace>());
  const int64_t ranges = (data.n_rows + kRange - 1) / kRange;
  std::atomic<bool> stop{false};
  std::atomic<int64_t> done{0};
  run_tasks(count * ranges, threads, stop, done, poll, [&](int thread, int64_t task) {
    Workspace& mine = *workspaces[thread];
    const int64_t k = task % count, range = task / count, i = which[k];
    const MemberRecord& r = nets.records[i];
    const Shape shape = nets.shape(i);
    const int64_t* columns = r.features_start >= 0 ? nets.features + r.features_start : nullptr;
    mine.shared.prepare(nets, data, columns, shape.inputs(), kBlockRows);
    float* packed = mine.packed.reserve(shape.packed_floats());
    std::memset(packed, 0, shape.packed_floats() * sizeof(float));
    pack(shape, delivered(r, state, i), packed);
    float* scratch = mine.scratch.reserve(kernel.scratch_floats(shape, kBlockRows));
    const Net net{shape, packed, {nullptr, nullptr}, nullptr};
    const int64_t end = std::min(data.n_rows, (range + 1) * kRange);
    for (int64_t first = range * kRange; first < end && !stop; first += kBlockRows) {
      const Batch& batch = mine.shared.gather(nullptr, nullptr, nullptr, first, std::min(kBlockRows, end - first));
      visit(k, range, first, mine.shared, batch, net, scratch);
    }
    done.fetch_add(1, std::memory_order_relaxed);
  });
}

}  // namespace

void predict(const Kernel& kernel, const Networks& nets, const Data& data, const State& state, const int64_t* which,
             int64_t count, float* out, int threads, const Poll& poll) {
  visit_batches(
      kernel, nets, data, state, which, count, threads, poll,
      [&](int64_t k, int64_t, int64_t first, const SharedBatch&, const Batch& batch, const Net& net, float* scratch) {
        const float* y = kernel.forward(net, batch, scratch);
        float* target = out + (k * data.n_rows + first) * nets.n_outputs;
        for (int64_t r = 0; r < batch.rows; ++r)
          for (int64_t o = 0; o < nets.n_outputs; ++o) target[r * nets.n_outputs + o] = y[o * batch.row_stride + r];
      });
}

void evaluate(const Kernel& kernel, const Networks& nets, const Data& data, const State& state, const int64_t* which,
              int64_t count, double* loss, double* score, int threads, const Poll& poll) {
  const int64_t ranges = (data.n_rows + kRange - 1) / kRange;
  std::vector<Score> parts(count * ranges);
  visit_batches(kernel, nets, data, state, which, count, threads, poll,
                [&](int64_t k, int64_t range, int64_t, const SharedBatch& shared, const Batch& batch, const Net& net,
                    float* scratch) { parts[k * ranges + range].add(kernel, net, shared, batch, scratch); });
  const double variance = target_variance(nets, data, nullptr, data.n_rows);
  for (int64_t k = 0; k < count; ++k) {
    Score total;
    for (int64_t range = 0; range < ranges; ++range) {  // in a fixed order, whoever computed them
      const Score& part = parts[k * ranges + range];
      total.loss += part.loss;
      total.norm += part.norm;
      total.hits += part.hits;
    }
    loss[k] = total.mean_loss();
    score[k] = total.score(nets.loss, data.n_rows, nets.n_outputs, variance);
  }
}

}  // namespace shoal

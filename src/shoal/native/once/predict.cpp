// Networks that are not trained: predict and evaluate share the walk over members and rows.
#include <algorithm>
#include <memory>
#include <numeric>
#include <vector>

#include "driver.hpp"
#include "groups.hpp"
#include "packing.hpp"
#include "score.hpp"

namespace shoal {
namespace {

constexpr int64_t kRange = 4096;  // rows of one task

// Members that see the same columns, so that rows are gathered once for all of them: positions in `which`.
std::vector<std::vector<int64_t>> companies(const Networks& nets, const int64_t* which, int64_t count, int64_t most) {
  constexpr int64_t kLargest = 64;
  std::vector<int64_t> order(count);
  std::iota(order.begin(), order.end(), 0);
  const auto columns = [&](int64_t k) { return nets.records[which[k]].features_start; };
  std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) { return columns(a) < columns(b); });
  std::vector<std::vector<int64_t>> found;
  int64_t floats = 0;
  for (int64_t k : order) {
    const int64_t own = nets.shape(which[k]).packed_floats();
    const bool fits = !found.empty() && static_cast<int64_t>(found.back().size()) < std::min(kLargest, most) &&
                      columns(found.back().front()) == columns(k) && floats + own <= cache_floats();
    if (!fits) {
      found.emplace_back();
      floats = 0;
    }
    found.back().push_back(k);
    floats += own;
  }
  return found;
}

// What one thread works with: some members in the kernel's form, and the rows that they share.
struct Workspace {
  SharedBatch shared;
  Arena packed, scratch_arena;
  std::vector<Net> members;
  float* scratch = nullptr;

  void open(const Kernel& kernel, const Networks& nets, const Data& data, const State& state, const int64_t* which,
            const std::vector<int64_t>& company) {
    const MemberRecord& first = nets.records[which[company.front()]];
    const int64_t* columns = first.features_start >= 0 ? nets.features + first.features_start : nullptr;
    shared.prepare(nets, data, columns, nets.dims[first.dims_start], kBlockRows);
    int64_t floats = 0, most = 0;
    for (int64_t k : company) {
      const Shape shape = nets.shape(which[k]);
      floats += shape.packed_floats();
      most = std::max(most, kernel.scratch_floats(shape, kBlockRows));
    }
    scratch = scratch_arena.reserve(most);
    float* memory = packed.reserve(floats);
    std::memset(memory, 0, floats * sizeof(float));
    members.clear();
    for (int64_t k : company) {
      const Shape shape = nets.shape(which[k]);
      pack(shape, delivered(nets.records[which[k]], state, which[k]), memory);
      members.push_back({shape, memory, {nullptr, nullptr}, nullptr});
      memory += shape.packed_floats();
    }
  }
};

// Calls visit(position, range, first row, shared, batch, net, scratch) for blocks of rows; a task is some members x one
// range of rows.
template <class Visit>
void visit_batches(const Kernel& kernel, const Networks& nets, const Data& data, const State& state,
                   const int64_t* which, int64_t count, int threads, const Poll& poll, const Visit& visit) {
  std::vector<std::unique_ptr<Workspace>> workspaces;
  for (int t = 0; t < threads; ++t) workspaces.push_back(std::make_unique<Workspace>());
  const int64_t ranges = (data.n_rows + kRange - 1) / kRange;
  // Several tasks for each thread, so that all end at much the same time.
  const auto groups = companies(nets, which, count, std::max<int64_t>(1, count * ranges / (8 * threads)));
  const int64_t n_groups = static_cast<int64_t>(groups.size());
  std::atomic<bool> stop{false};
  std::atomic<int64_t> done{0};
  run_tasks(n_groups * ranges, threads, stop, done, poll, [&](int thread, int64_t task) {
    Workspace& mine = *workspaces[thread];
    const std::vector<int64_t>& company = groups[task % n_groups];
    const int64_t range = task / n_groups, end = std::min(data.n_rows, (range + 1) * kRange);
    mine.open(kernel, nets, data, state, which, company);
    for (int64_t first = range * kRange; first < end && !stop; first += kBlockRows) {
      const Batch& batch = mine.shared.gather(nullptr, nullptr, nullptr, first, std::min(kBlockRows, end - first));
      for (size_t m = 0; m < company.size(); ++m)
        visit(company[m], range, first, mine.shared, batch, mine.members[m], mine.scratch);
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

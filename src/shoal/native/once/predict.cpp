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

// Some rows of one member.
struct Piece {
  int64_t position, range, first, end;
};

// All rows for each of `count` members, the same rows for all of them before the next ones.
std::vector<Piece> every_row(int64_t count, int64_t rows) {
  std::vector<Piece> pieces;
  for (int64_t first = 0; first < rows; first += kRange)
    for (int64_t k = 0; k < count; ++k) pieces.push_back({k, first / kRange, first, std::min(rows, first + kRange)});
  return pieces;
}

// Calls visit(position, range, first row, shared, batch, net, scratch) for blocks of rows; a task is one piece.
template <class Visit>
void visit_batches(const Kernel& kernel, const Networks& nets, const Data& data, const State& state,
                   const int64_t* which, const std::vector<Piece>& pieces, int threads, const Poll& poll,
                   const Visit& visit) {
  std::vector<std::unique_ptr<Workspace>> workspaces;
  for (int t = 0; t < threads; ++t) workspaces.push_back(std::make_unique<Workspace>());
  std::atomic<bool> stop{false};
  std::atomic<int64_t> done{0};
  run_tasks(static_cast<int64_t>(pieces.size()), threads, stop, done, poll, [&](int thread, int64_t task) {
    Workspace& mine = *workspaces[thread];
    const Piece& piece = pieces[task];
    const int64_t k = piece.position, i = which[k];
    const MemberRecord& r = nets.records[i];
    const Shape shape = nets.shape(i);
    const int64_t* columns = r.features_start >= 0 ? nets.features + r.features_start : nullptr;
    mine.shared.prepare(nets, data, columns, shape.inputs(), kBlockRows);
    float* packed = mine.packed.reserve(shape.packed_floats());
    std::memset(packed, 0, shape.packed_floats() * sizeof(float));
    pack(shape, delivered(r, state, i), packed);
    float* scratch = mine.scratch.reserve(kernel.scratch_floats(shape, kBlockRows));
    const Net net{shape, packed, {nullptr, nullptr}, nullptr};
    for (int64_t first = piece.first; first < piece.end && !stop; first += kBlockRows) {
      const Batch& batch =
          mine.shared.gather(nullptr, nullptr, nullptr, first, std::min(kBlockRows, piece.end - first));
      visit(k, piece.range, first, mine.shared, batch, net, scratch);
    }
    done.fetch_add(1, std::memory_order_relaxed);
  });
}

// Outputs of a block of rows, row by row.
void write_outputs(const float* y, const Batch& batch, int64_t n_outputs, float* target) {
  for (int64_t r = 0; r < batch.rows; ++r)
    for (int64_t o = 0; o < n_outputs; ++o) target[r * n_outputs + o] = y[o * batch.row_stride + r];
}

}  // namespace

void predict(const Kernel& kernel, const Networks& nets, const Data& data, const State& state, const int64_t* which,
             int64_t count, float* out, int threads, const Poll& poll) {
  visit_batches(
      kernel, nets, data, state, which, every_row(count, data.n_rows), threads, poll,
      [&](int64_t k, int64_t, int64_t first, const SharedBatch&, const Batch& batch, const Net& net, float* scratch) {
        write_outputs(kernel.forward(net, batch, scratch), batch, nets.n_outputs,
                      out + (k * data.n_rows + first) * nets.n_outputs);
      });
}

void predict_own_rows(const Kernel& kernel, const Networks& nets, const Data& data, const State& state,
                      const int64_t* which, int64_t count, const int64_t* first_row, const int64_t* n_rows, float* out,
                      int threads, const Poll& poll) {
  std::vector<Piece> pieces;
  std::vector<int64_t> start(count);  // of each member's outputs, in rows
  for (int64_t k = 0, total = 0; k < count; total += n_rows[k++]) {
    start[k] = total - first_row[k];
    const int64_t end = first_row[k] + n_rows[k];
    for (int64_t first = first_row[k]; first < end; first += kRange)
      pieces.push_back({k, 0, first, std::min(end, first + kRange)});
  }
  visit_batches(
      kernel, nets, data, state, which, pieces, threads, poll,
      [&](int64_t k, int64_t, int64_t first, const SharedBatch&, const Batch& batch, const Net& net, float* scratch) {
        write_outputs(kernel.forward(net, batch, scratch), batch, nets.n_outputs,
                      out + (start[k] + first) * nets.n_outputs);
      });
}

void evaluate(const Kernel& kernel, const Networks& nets, const Data& data, const State& state, const int64_t* which,
              int64_t count, double* loss, double* score, int threads, const Poll& poll) {
  const int64_t ranges = (data.n_rows + kRange - 1) / kRange;
  std::vector<Score> parts(count * ranges);
  visit_batches(kernel, nets, data, state, which, every_row(count, data.n_rows), threads, poll,
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

// Networks that are not trained: predict and evaluate share the walk over members and rows.
#include <algorithm>
#include <memory>
#include <numeric>
#include <tuple>
#include <vector>

#include "driver.hpp"
#include "groups.hpp"
#include "packing.hpp"
#include "score.hpp"

namespace shoal {
namespace {

constexpr int64_t kRange = 4096;  // rows of one task

// Which rows each member looks at; null: all rows of the data.
struct OwnRows {
  const int64_t *first, *count;
};

// Some members, which share rows and columns, on some of these rows.
struct Piece {
  int64_t company, range, first, end;
};

// What there is to do: members in companies, for which rows are gathered once, as positions in `which`; and pieces.
struct Walk {
  std::vector<std::vector<int64_t>> companies;
  std::vector<Piece> pieces;

  Walk(const Networks& nets, int64_t data_rows, const int64_t* which, int64_t count, OwnRows own, int threads) {
    const auto first = [&](int64_t k) { return own.first ? own.first[k] : 0; };
    const auto rows = [&](int64_t k) { return own.count ? own.count[k] : data_rows; };
    const auto key = [&](int64_t k) {
      return std::make_tuple(nets.records[which[k]].features_start, first(k), rows(k));
    };
    std::vector<int64_t> order(count);
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) { return key(a) < key(b); });
    int64_t alone = 0, most_ranges = 0, floats = 0;  // pieces if every member were alone
    for (int64_t k : order) {
      const int64_t ranges = (rows(k) + kRange - 1) / kRange;
      alone += ranges;
      most_ranges = std::max(most_ranges, ranges);
    }
    // Several pieces for each thread, so that all end at much the same time.
    const int64_t largest = std::min<int64_t>(64, std::max<int64_t>(1, alone / (8 * threads)));
    for (int64_t k : order) {
      const int64_t mine = nets.shape(which[k]).packed_floats();
      const bool fits = !companies.empty() && static_cast<int64_t>(companies.back().size()) < largest &&
                        key(companies.back().front()) == key(k) && floats + mine <= cache_floats();
      if (!fits) {
        companies.emplace_back();
        floats = 0;
      }
      companies.back().push_back(k);
      floats += mine;
    }
    for (int64_t range = 0; range < most_ranges; ++range)
      for (size_t c = 0; c < companies.size(); ++c) {
        const int64_t k = companies[c].front(), begin = first(k) + range * kRange, last = first(k) + rows(k);
        if (begin < last) pieces.push_back({static_cast<int64_t>(c), range, begin, std::min(last, begin + kRange)});
      }
  }
};

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
      most = std::max(most, kernel.scratch_floats(shape, kBlockRows, 1));
    }
    scratch = scratch_arena.reserve(most);
    float* memory = packed.reserve(floats);
    std::memset(memory, 0, floats * sizeof(float));
    members.clear();
    for (int64_t k : company) {
      const Shape shape = nets.shape(which[k]);
      pack(shape, delivered(nets.records[which[k]], state, which[k]), memory);
      members.push_back({shape, memory, {nullptr, nullptr}, nullptr, kBlockRows});
      memory += shape.packed_floats();
    }
  }
};

// Calls visit(position, range, first row, shared, batch, net, scratch) for blocks of rows; a task is one piece.
template <class Visit>
void visit_batches(const Kernel& kernel, const Networks& nets, const Data& data, const State& state,
                   const int64_t* which, int64_t count, OwnRows own, int threads, const Poll& poll,
                   const Visit& visit) {
  std::vector<std::unique_ptr<Workspace>> workspaces;
  for (int t = 0; t < threads; ++t) workspaces.push_back(std::make_unique<Workspace>());
  const Walk walk(nets, data.n_rows, which, count, own, threads);
  std::atomic<bool> stop{false};
  std::atomic<int64_t> done{0};
  run_tasks(static_cast<int64_t>(walk.pieces.size()), threads, stop, done, poll, [&](int thread, int64_t task) {
    Workspace& mine = *workspaces[thread];
    const Piece& piece = walk.pieces[task];
    const std::vector<int64_t>& company = walk.companies[piece.company];
    mine.open(kernel, nets, data, state, which, company);
    for (int64_t first = piece.first; first < piece.end && !stop; first += kBlockRows) {
      const Batch& batch =
          mine.shared.gather(nullptr, nullptr, nullptr, first, std::min(kBlockRows, piece.end - first));
      for (size_t m = 0; m < company.size(); ++m)
        visit(company[m], piece.range, first, mine.shared, batch, mine.members[m], mine.scratch);
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
      kernel, nets, data, state, which, count, {nullptr, nullptr}, threads, poll,
      [&](int64_t k, int64_t, int64_t first, const SharedBatch&, const Batch& batch, const Net& net, float* scratch) {
        write_outputs(kernel.forward(net, batch, scratch, kAlone), batch, nets.n_outputs,
                      out + (k * data.n_rows + first) * nets.n_outputs);
      });
}

void predict_own_rows(const Kernel& kernel, const Networks& nets, const Data& data, const State& state,
                      const int64_t* which, int64_t count, const int64_t* first_row, const int64_t* n_rows, float* out,
                      int threads, const Poll& poll) {
  std::vector<int64_t> start(count);  // of each member's outputs, in rows
  for (int64_t k = 0, total = 0; k < count; total += n_rows[k++]) start[k] = total - first_row[k];
  visit_batches(
      kernel, nets, data, state, which, count, {first_row, n_rows}, threads, poll,
      [&](int64_t k, int64_t, int64_t first, const SharedBatch&, const Batch& batch, const Net& net, float* scratch) {
        write_outputs(kernel.forward(net, batch, scratch, kAlone), batch, nets.n_outputs,
                      out + (start[k] + first) * nets.n_outputs);
      });
}

void evaluate(const Kernel& kernel, const Networks& nets, const Data& data, const State& state, const int64_t* which,
              int64_t count, double* loss, double* score, int threads, const Poll& poll) {
  const int64_t ranges = (data.n_rows + kRange - 1) / kRange;
  std::vector<Score> parts(count * ranges);
  visit_batches(kernel, nets, data, state, which, count, {nullptr, nullptr}, threads, poll,
                [&](int64_t k, int64_t range, int64_t, const SharedBatch& shared, const Batch& batch, const Net& net,
                    float* scratch) { parts[k * ranges + range].add(kernel, net, shared, batch, scratch, kAlone); });
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

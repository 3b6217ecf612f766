#include "checks.hpp"

#include <cmath>
#include <stdexcept>
#include <string>
#include <vector>

#include "shared/codes.hpp"

namespace shoal {
namespace {

// Offsets s[0] = 0 <= s[1] <= ... <= s[n] = total.
void check_starts(const Numbers& starts, int64_t total, const char* rule) {
  require(length(starts) >= 2 && starts.data()[0] == 0 && starts.data()[length(starts) - 1] == total, rule);
  for (int64_t i = 0; i + 1 < length(starts); ++i) require(starts.data()[i] <= starts.data()[i + 1], rule);
}

int64_t parameter_count(const Shape& s) {
  int64_t total = 0;
  for (int l = 0; l < s.n_layers; ++l) {
    int64_t product;
    require(!__builtin_mul_overflow(s.dims[l] + 1, s.dims[l + 1], &product) &&
                !__builtin_add_overflow(total, product, &total),
            "a layer is too large");
  }
  return total;
}

void check_region(int64_t start, int64_t size, int64_t total, const char* rule) {
  require(start >= 0 && size >= 0 && start <= total && size <= total - start, rule);
}

void check_codes(const MemberRecord& r) {
  require(r.activation >= 0 && r.activation < ActivationCount, "unknown activation");
  require(r.optimizer >= 0 && r.optimizer < OptimizerCount, "unknown optimizer");
  require(r.schedule >= 0 && r.schedule < ScheduleCount, "unknown schedule");
  require(r.init >= 0 && r.init < InitCount, "unknown init");
  require(r.optimizer_slots == (r.optimizer != Sgd ? 2 : r.momentum > 0 ? 1 : 0), "optimizer_slots does not fit");
  require(r.batch_size >= 1 && r.batch_size <= (1 << 30) && r.patience >= 0,
          "batch_size and patience must not be negative");
  require(r.dropout >= 0 && r.dropout < 1, "dropout must be in [0, 1)");
  require(r.beta2 >= 0 && r.beta2 < 1, "beta2 must be in [0, 1)");
  require(std::isfinite(r.warmup) && r.warmup >= 0 && r.warmup < 1e9, "warmup must be finite");
}

}  // namespace

void require(bool holds, const char* rule) {
  if (!holds) throw std::invalid_argument(std::string("the kernel was called wrongly: ") + rule);
}

void check_indices(const int64_t* values, int64_t count, int64_t below, const char* rule) {
  for (int64_t i = 0; i < count; ++i) require(values[i] >= 0 && values[i] < below, rule);
}

void check_threads(int threads) { require(threads >= 1 && threads <= 4096, "threads must be from 1 to 4096"); }

Networks check_networks(const Matrix<const uint8_t>& records, const Numbers& dims, const Numbers& features,
                        int64_t n_features, int64_t n_outputs, int loss, const Vector<const float>& class_weight,
                        int64_t n_parameters) {
  require(records.shape(1) == sizeof(MemberRecord), "records have the wrong size");
  require(reinterpret_cast<uintptr_t>(records.data()) % alignof(MemberRecord) == 0, "records are not aligned");
  require(loss >= 0 && loss < LossCount, "unknown loss");
  require(n_features >= 1 && n_outputs >= 1, "there must be features and outputs");
  require(class_weight.shape(0) == 0 || static_cast<int64_t>(class_weight.shape(0)) == n_outputs,
          "one weight per class");
  const Networks nets{reinterpret_cast<const MemberRecord*>(records.data()),
                      static_cast<int64_t>(records.shape(0)),
                      dims.data(),
                      features.data(),
                      n_features,
                      n_outputs,
                      loss,
                      class_weight.shape(0) ? class_weight.data() : nullptr};
  for (int64_t i = 0; i < nets.count; ++i) {
    const MemberRecord& r = nets.records[i];
    check_codes(r);
    require(r.n_layers >= 1 && r.dims_start >= 0 && r.dims_start <= length(dims) - r.n_layers - 1,
            "dims are out of range");
    const Shape s = nets.shape(i);
    for (int l = 0; l <= s.n_layers; ++l)
      require(s.dims[l] >= 1 && s.dims[l] < (int64_t{1} << 31), "a width is out of range");
    require(s.outputs() == n_outputs, "a member has the wrong number of outputs");
    if (r.features_start < 0)
      require(s.inputs() == n_features, "a member has the wrong number of inputs");
    else {
      check_region(r.features_start, s.inputs(), length(features), "features are out of range");
      check_indices(features.data() + r.features_start, s.inputs(), n_features, "a feature is out of range");
    }
    const int64_t count = parameter_count(s);
    check_region(r.parameters, count, n_parameters, "parameters are out of range");
    require(r.slot_size >= count, "a slot is too small");
  }
  return nets;
}

void check_slots(const Networks& nets, int64_t n_slots) {
  for (int64_t i = 0; i < nets.count; ++i) {
    const MemberRecord& r = nets.records[i];
    int64_t size;
    require(!__builtin_mul_overflow(r.slot_size, int64_t{r.optimizer_slots} + (r.patience > 0), &size),
            "slots are too large");
    check_region(r.slots, size, n_slots, "slots are out of range");
  }
}

Data check_data(const Networks& nets, const Matrix<const float>& X, const Vector<const int32_t>& labels,
                const Matrix<const float>& targets, bool required) {
  const int64_t rows = static_cast<int64_t>(X.shape(0));
  require(static_cast<int64_t>(X.shape(1)) == nets.n_features && rows >= 1, "X has the wrong shape");
  const bool classes = nets.loss == CrossEntropy;
  if (required && classes) {
    require(static_cast<int64_t>(labels.shape(0)) == rows, "one label per row");
    for (int64_t i = 0; i < rows; ++i)
      require(labels.data()[i] >= 0 && labels.data()[i] < nets.n_outputs, "a label is out of range");
  }
  if (required && !classes)
    require(static_cast<int64_t>(targets.shape(0)) == rows && static_cast<int64_t>(targets.shape(1)) == nets.n_outputs,
            "targets have the wrong shape");
  return {X.data(), rows, required && classes ? labels.data() : nullptr,
          required && !classes ? targets.data() : nullptr};
}

void check_rows(const Networks& nets, const Data& data, const Numbers& train_rows, const Numbers& train_start,
                const Vector<const float>& weight, const Numbers& valid_rows, const Numbers& valid_start,
                const Numbers& split) {
  check_starts(train_start, length(train_rows), "train_start does not fit");
  check_starts(valid_start, length(valid_rows), "valid_start does not fit");
  require(length(train_start) == length(valid_start), "as many splits for training as for validation");
  check_indices(train_rows.data(), length(train_rows), data.n_rows, "a training row is out of range");
  check_indices(valid_rows.data(), length(valid_rows), data.n_rows, "a validation row is out of range");
  require(weight.shape(0) == 0 || weight.shape(0) == train_rows.shape(0), "one weight per training row");
  for (size_t i = 0; i < weight.shape(0); ++i)
    require(weight.data()[i] > 0 && std::isfinite(weight.data()[i]), "row weights must be above zero");
  require(length(split) == nets.count, "one entry per member");
  check_indices(split.data(), nets.count, length(train_start) - 1, "a split is out of range");
}

void check_work(const Networks& nets, const Rows& rows, const State& state, const Work& work) {
  check_indices(work.which, work.count, nets.count, "which is out of range");
  std::vector<bool> seen(nets.count);
  for (int64_t k = 0; k < work.count; ++k) {
    const int64_t i = work.which[k], s = rows.split[i], run = work.until[k] - state.epochs[i];
    require(!seen[i], "a member is named twice");
    seen[i] = true;
    require(run >= 1 && run <= work.span, "a target does not fit the log");
    require(state.status[i] == Active, "a member is not active");
    require(rows.horizon[i] >= 0 && rows.horizon[i] <= (int64_t{1} << 31), "horizon must not be negative");
    require(rows.train_start[s] < rows.train_start[s + 1], "a split has no training rows");
    require(nets.records[i].patience == 0 || rows.valid_start[s] < rows.valid_start[s + 1],
            "patience needs validation rows");
  }
}

}  // namespace shoal

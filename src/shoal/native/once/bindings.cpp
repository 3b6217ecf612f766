// Python's way in. Everything that the kernel indexes with is checked here, once, before any of it runs.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/function.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <cmath>
#include <cstdlib>
#include <stdexcept>

#include "shared/random.hpp"
#include "trainer.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace {

using namespace shoal;

template <class T>
using Vector = nb::ndarray<T, nb::numpy, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
template <class T>
using Matrix = nb::ndarray<T, nb::numpy, nb::ndim<2>, nb::c_contig, nb::device::cpu>;

void require(bool holds, const char* rule) {
  if (!holds) throw std::invalid_argument(std::string("the kernel was called wrongly: ") + rule);
}

int64_t length(const Vector<const int64_t>& v) { return static_cast<int64_t>(v.shape(0)); }

// Offsets s[0] = 0 <= s[1] <= ... <= s[n] = total.
void check_starts(const Vector<const int64_t>& starts, int64_t total, const char* rule) {
  require(length(starts) >= 2 && starts.data()[0] == 0 && starts.data()[length(starts) - 1] == total, rule);
  for (int64_t i = 0; i + 1 < length(starts); ++i) require(starts.data()[i] <= starts.data()[i + 1], rule);
}

void check_indices(const int64_t* values, int64_t count, int64_t below, const char* rule) {
  for (int64_t i = 0; i < count; ++i) require(values[i] >= 0 && values[i] < below, rule);
}

int64_t parameter_count(const Shape& s) {
  int64_t total = 0;
  for (int l = 0; l < s.n_layers; ++l) {
    int64_t product;
    require(!__builtin_mul_overflow(s.dims[l] + 1, s.dims[l + 1], &product) &&
                !__builtin_add_overflow(total, product, &total), "a layer is too large");
  }
  return total;
}

void check_region(int64_t start, int64_t size, int64_t total, const char* rule) {
  require(start >= 0 && size >= 0 && start <= total && size <= total - start, rule);
}

void check_codes(const Recipe& r) {
  require(r.activation >= 0 && r.activation < ActivationCount, "unknown activation");
  require(r.optimizer >= 0 && r.optimizer < OptimizerCount, "unknown optimizer");
  require(r.schedule >= 0 && r.schedule < ScheduleCount, "unknown schedule");
  require(r.init >= 0 && r.init < InitCount, "unknown init");
  require(r.optimizer_slots == (r.optimizer != Sgd ? 2 : r.momentum > 0 ? 1 : 0), "optimizer_slots does not fit");
  require(r.batch_size >= 1 && r.batch_size <= (1 << 30) && r.patience >= 0, "batch_size and patience must not be negative");
  require(r.dropout >= 0 && r.dropout < 1, "dropout must be in [0, 1)");
  require(std::isfinite(r.warmup) && r.warmup >= 0 && r.warmup < 1e9, "warmup must be finite");
}

// Records, dims and features; `n_parameters`: floats in the buffer of parameters.
Networks check_networks(const Matrix<const uint8_t>& recipes, const Vector<const int64_t>& dims,
                        const Vector<const int64_t>& features, int64_t n_features, int64_t n_outputs, int loss,
                        const Vector<const float>& class_weight, int64_t n_parameters) {
  require(recipes.shape(1) == sizeof(Recipe), "records have the wrong size");
  require(reinterpret_cast<uintptr_t>(recipes.data()) % alignof(Recipe) == 0, "records are not aligned");
  require(loss >= 0 && loss < LossCount, "unknown loss");
  require(n_features >= 1 && n_outputs >= 1, "there must be features and outputs");
  require(class_weight.shape(0) == 0 || static_cast<int64_t>(class_weight.shape(0)) == n_outputs, "one weight per class");
  const Networks nets{reinterpret_cast<const Recipe*>(recipes.data()), static_cast<int64_t>(recipes.shape(0)), dims.data(),
                      features.data(), n_features, n_outputs, loss, class_weight.shape(0) ? class_weight.data() : nullptr};
  for (int64_t i = 0; i < nets.count; ++i) {
    const Recipe& r = nets.recipes[i];
    check_codes(r);
    require(r.n_layers >= 1 && r.dims_start >= 0 && r.dims_start <= length(dims) - r.n_layers - 1, "dims are out of range");
    const Shape s = nets.shape(i);
    for (int l = 0; l <= s.n_layers; ++l) require(s.dims[l] >= 1 && s.dims[l] < (int64_t{1} << 31), "a width is out of range");
    require(s.outputs() == n_outputs, "a member has the wrong number of outputs");
    if (r.features_start < 0) require(s.inputs() == n_features, "a member has the wrong number of inputs");
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
    const Recipe& r = nets.recipes[i];
    int64_t size;
    require(!__builtin_mul_overflow(r.slot_size, int64_t{r.optimizer_slots} + (r.patience > 0), &size), "slots are too large");
    check_region(r.slots, size, n_slots, "slots are out of range");
  }
}

// `required`: outputs are scored, so there must be a target for each row.
Table check_table(const Networks& nets, const Matrix<const float>& X, const Vector<const int32_t>& labels,
                  const Matrix<const float>& targets, bool required) {
  const int64_t rows = static_cast<int64_t>(X.shape(0));
  require(static_cast<int64_t>(X.shape(1)) == nets.n_features && rows >= 1, "X has the wrong shape");
  const bool classes = nets.loss == CrossEntropy;
  if (required && classes) {
    require(static_cast<int64_t>(labels.shape(0)) == rows, "one label per row");
    for (int64_t i = 0; i < rows; ++i) require(labels.data()[i] >= 0 && labels.data()[i] < nets.n_outputs, "a label is out of range");
  }
  if (required && !classes)
    require(static_cast<int64_t>(targets.shape(0)) == rows && static_cast<int64_t>(targets.shape(1)) == nets.n_outputs, "targets have the wrong shape");
  return {X.data(), rows, required && classes ? labels.data() : nullptr, required && !classes ? targets.data() : nullptr};
}

// The kernel in use: the fastest, or the one that SHOAL_ISA names.
const Kernel& chosen_kernel() {
  const char* name = std::getenv("SHOAL_ISA");
  return find_kernel(name ? name : "");
}

// Python is asked from the calling thread: for signals, and for a word to stop. An exception there ends the work.
Poll python_poll(const nb::object& progress) {
  return [&progress](int64_t done) {
    nb::gil_scoped_acquire hold;
    if (PyErr_CheckSignals() != 0) throw nb::python_error();
    return !progress.is_none() && nb::cast<bool>(progress(done));
  };
}

void check_threads(int threads) { require(threads >= 1 && threads <= 4096, "threads must be from 1 to 4096"); }

using Numbers = Vector<const int64_t>;

bool train_members(Matrix<const uint8_t> recipes, Numbers dims, Numbers features, int64_t n_outputs, int loss,
                   Vector<const float> class_weight, Matrix<const float> X, Vector<const int32_t> labels,
                   Matrix<const float> targets, Numbers train_rows, Numbers train_start, Vector<const float> weight,
                   Numbers valid_rows, Numbers valid_start, Numbers split, bool shuffle, Vector<const uint64_t> order,
                   Numbers horizon, Vector<float> parameters, Vector<float> slots, Vector<int64_t> steps,
                   Vector<int64_t> epochs, Vector<int64_t> best_epoch, Vector<double> best_loss, Vector<uint8_t> status,
                   Numbers which, Numbers until, Matrix<double> log_loss, Matrix<double> log_valid_loss,
                   Matrix<double> log_valid_score, int threads, nb::object progress) {
  check_threads(threads);
  const Networks nets = check_networks(recipes, dims, features, static_cast<int64_t>(X.shape(1)), n_outputs, loss,
                                       class_weight, static_cast<int64_t>(parameters.shape(0)));
  check_slots(nets, static_cast<int64_t>(slots.shape(0)));
  const Table table = check_table(nets, X, labels, targets, true);
  check_starts(train_start, length(train_rows), "train_start does not fit");
  check_starts(valid_start, length(valid_rows), "valid_start does not fit");
  require(length(train_start) == length(valid_start), "as many splits for training as for validation");
  check_indices(train_rows.data(), length(train_rows), table.n_rows, "a training row is out of range");
  check_indices(valid_rows.data(), length(valid_rows), table.n_rows, "a validation row is out of range");
  require(weight.shape(0) == 0 || weight.shape(0) == train_rows.shape(0), "one weight per training row");
  for (size_t i = 0; i < weight.shape(0); ++i) require(weight.data()[i] > 0 && std::isfinite(weight.data()[i]), "row weights must be above zero");
  require(length(split) == nets.count && static_cast<int64_t>(order.shape(0)) == nets.count && length(horizon) == nets.count, "one entry per member");
  check_indices(split.data(), nets.count, length(train_start) - 1, "a split is out of range");
  for (size_t size : {steps.shape(0), epochs.shape(0), best_epoch.shape(0), best_loss.shape(0), status.shape(0)})
    require(static_cast<int64_t>(size) == nets.count, "the state must have one entry per member");
  check_indices(which.data(), length(which), nets.count, "which is out of range");
  require(length(until) == length(which), "one target per member");
  const size_t span = log_loss.shape(1);
  for (const auto& log : {log_loss, log_valid_loss, log_valid_score})
    require(log.shape(0) == which.shape(0) && log.shape(1) == span, "the log has the wrong shape");
  std::vector<bool> seen(nets.count);
  for (int64_t k = 0; k < length(which); ++k) {
    const int64_t i = which.data()[k], s = split.data()[i], run = until.data()[k] - epochs.data()[i];
    require(!seen[i], "a member is named twice");
    seen[i] = true;
    require(run >= 1 && run <= static_cast<int64_t>(span), "a target does not fit the log");
    require(status.data()[i] == Active, "a member is not active");
    require(horizon.data()[i] >= 0 && horizon.data()[i] <= (int64_t{1} << 31), "horizon must not be negative");
    require(train_start.data()[s] < train_start.data()[s + 1], "a split has no training rows");
    require(nets.recipes[i].patience == 0 || valid_start.data()[s] < valid_start.data()[s + 1], "patience needs validation rows");
  }
  if (length(which) == 0) return true;
  const shoal::Rows rows{train_rows.data(), train_start.data(), weight.shape(0) ? weight.data() : nullptr, valid_rows.data(),
                         valid_start.data(), split.data(), shuffle, order.data(), horizon.data()};
  const State state{parameters.data(), slots.data(), steps.data(), epochs.data(), best_epoch.data(), best_loss.data(), status.data()};
  const Work work{which.data(), until.data(), length(which), static_cast<int64_t>(span), log_loss.data(), log_valid_loss.data(), log_valid_score.data()};
  const Kernel& kernel = chosen_kernel();
  const Poll poll = python_poll(progress);
  nb::gil_scoped_release release;
  return train(kernel, nets, table, rows, state, work, threads, poll);
}

State look_state(Vector<const float>& parameters, Vector<const float>& slots, Numbers& best_epoch, const Networks& nets) {
  check_slots(nets, static_cast<int64_t>(slots.shape(0)));
  require(length(best_epoch) == nets.count, "the state must have one entry per member");
  State state{};  // only read
  state.parameters = const_cast<float*>(parameters.data());
  state.slots = const_cast<float*>(slots.data());
  state.best_epoch = const_cast<int64_t*>(best_epoch.data());
  return state;
}

void predict_members(Matrix<const uint8_t> recipes, Numbers dims, Numbers features, int64_t n_outputs,
                     Matrix<const float> X, Vector<const float> parameters, Vector<const float> slots, Numbers best_epoch,
                     Numbers which, nb::ndarray<float, nb::numpy, nb::ndim<3>, nb::c_contig, nb::device::cpu> out, int threads) {
  check_threads(threads);
  const auto none = Vector<const float>(nullptr, {0});
  const Networks nets = check_networks(recipes, dims, features, static_cast<int64_t>(X.shape(1)), n_outputs, SquaredError,
                                       none, static_cast<int64_t>(parameters.shape(0)));
  const State state = look_state(parameters, slots, best_epoch, nets);
  const Table table = check_table(nets, X, Vector<const int32_t>(nullptr, {0}), Matrix<const float>(nullptr, {0, 0}), false);
  check_indices(which.data(), length(which), nets.count, "which is out of range");
  require(out.shape(0) == which.shape(0) && out.shape(1) == X.shape(0) && static_cast<int64_t>(out.shape(2)) == n_outputs, "out has the wrong shape");
  const Kernel& kernel = chosen_kernel();
  const nb::object nothing = nb::none();
  const Poll poll = python_poll(nothing);
  nb::gil_scoped_release release;
  predict(kernel, nets, table, state, which.data(), length(which), out.data(), threads, poll);
}

void evaluate_members(Matrix<const uint8_t> recipes, Numbers dims, Numbers features, int64_t n_outputs, int loss,
                      Vector<const float> class_weight, Matrix<const float> X, Vector<const int32_t> labels,
                      Matrix<const float> targets, Vector<const float> parameters, Vector<const float> slots,
                      Numbers best_epoch, Numbers which, Vector<double> losses, Vector<double> scores, int threads) {
  check_threads(threads);
  const Networks nets = check_networks(recipes, dims, features, static_cast<int64_t>(X.shape(1)), n_outputs, loss,
                                       class_weight, static_cast<int64_t>(parameters.shape(0)));
  const State state = look_state(parameters, slots, best_epoch, nets);
  const Table table = check_table(nets, X, labels, targets, true);
  check_indices(which.data(), length(which), nets.count, "which is out of range");
  require(losses.shape(0) == which.shape(0) && scores.shape(0) == which.shape(0), "one result per member");
  const Kernel& kernel = chosen_kernel();
  const nb::object nothing = nb::none();
  const Poll poll = python_poll(nothing);
  nb::gil_scoped_release release;
  evaluate(kernel, nets, table, state, which.data(), length(which), losses.data(), scores.data(), threads, poll);
}

void draw_members(Matrix<const uint8_t> recipes, Numbers dims, Numbers features, int64_t n_features, int64_t n_outputs,
                  Vector<float> parameters, int threads) {
  check_threads(threads);
  const Networks nets = check_networks(recipes, dims, features, n_features, n_outputs, SquaredError,
                                       Vector<const float>(nullptr, {0}), static_cast<int64_t>(parameters.shape(0)));
  nb::gil_scoped_release release;
  draw(nets, parameters.data(), threads);
}

int64_t workspace_bytes(Matrix<const uint8_t> recipes, Numbers dims, Numbers features, int64_t n_features,
                        int64_t n_outputs, Numbers batch_rows) {
  const Networks nets = check_networks(recipes, dims, features, n_features, n_outputs, SquaredError,
                                       Vector<const float>(nullptr, {0}), int64_t{1} << 62);
  require(length(batch_rows) == nets.count, "one batch size per member");
  return thread_bytes(nets, batch_rows.data());
}

template <class T>
T* new_array(size_t count) { return new T[count ? count : 1]; }

template <class T>
nb::ndarray<T, nb::numpy> give(T* data, std::initializer_list<size_t> shape) {
  nb::capsule owner(data, [](void* p) noexcept { delete[] static_cast<T*>(p); });
  return nb::ndarray<T, nb::numpy>(data, shape, owner);
}

nb::ndarray<int64_t, nb::numpy> row_order(uint64_t key, int64_t epoch, int64_t count) {
  require(count >= 0 && count < (int64_t{1} << 40), "count is out of range");
  int64_t* order = new_array<int64_t>(count);
  permutation(key, epoch, count, order);
  return give(order, {static_cast<size_t>(count)});
}

nb::ndarray<bool, nb::numpy> dropout_mask(uint64_t seed, int64_t step, int layer, int64_t rows, int64_t width, double rate) {
  int64_t count = 0;
  require(rows >= 0 && width >= 0 && rate >= 0 && rate < 1, "rows, width and rate must not be negative, rate below 1");
  require(!__builtin_mul_overflow(rows, width, &count) && count < (int64_t{1} << 40), "the mask is too large");
  bool* mask = new_array<bool>(count);
  const uint32_t threshold = static_cast<uint32_t>(std::nearbyint(rate * 16777216.0));
  const DropoutKey key(seed, step, layer);
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t j = 0; j < width; ++j)
      mask[r * width + j] = (mix32(key.row(static_cast<uint32_t>(r)) + static_cast<uint32_t>(j) * kNeuronFactor) >> 8) >= threshold;
  return give(mask, {static_cast<size_t>(rows), static_cast<size_t>(width)});
}

nb::tuple activation_values(int code, Vector<const float> x) {
  require(code >= 0 && code < ActivationCount, "unknown activation");
  float* value = new_array<float>(x.shape(0));
  float* derivative = new_array<float>(x.shape(0));
  chosen_kernel().activate(code, x.data(), value, derivative, static_cast<int64_t>(x.shape(0)));
  return nb::make_tuple(give(value, {x.shape(0)}), give(derivative, {x.shape(0)}));
}

// Arrays are taken as they are or refused: a converted copy of one that is written to would lose what was written.
auto array(const char* name) { return nb::arg(name).noconvert(); }

}  // namespace

NB_MODULE(_native, m) {
  m.doc() = "Shoal's compiled kernel. Use shoal.Population; nothing here is public.";
  m.attr("RECIPE_SIZE") = sizeof(shoal::Recipe);
  m.def("instruction_set", [] { return std::string(chosen_kernel().name); }, "The kernel in use; SHOAL_ISA names another.");
  m.def("instruction_sets", [] {
    std::vector<std::string> names;
    for (const shoal::Kernel* kernel : shoal::usable_kernels()) names.emplace_back(kernel->name);
    return names;
  }, "Kernels that run on this machine, the fastest first.");
  m.def("train", &train_members, array("recipes"), array("dims"), array("features"), "n_outputs"_a, "loss"_a, array("class_weight"), array("X"),
        array("labels"), array("targets"), array("train_rows"), array("train_start"), array("weight"), array("valid_rows"), array("valid_start"), array("split"),
        "shuffle"_a, array("order"), array("horizon"), array("parameters"), array("slots"), array("steps"), array("epochs"), array("best_epoch"),
        array("best_loss"), array("status"), array("which"), array("until"), array("log_loss"), array("log_valid_loss"), array("log_valid_score"),
        "threads"_a, "progress"_a.none(), "Train members in place; False when told to stop.");
  m.def("predict", &predict_members, array("recipes"), array("dims"), array("features"), "n_outputs"_a, array("X"), array("parameters"), array("slots"),
        array("best_epoch"), array("which"), array("out"), "threads"_a, "Fill out (members, rows, outputs).");
  m.def("evaluate", &evaluate_members, array("recipes"), array("dims"), array("features"), "n_outputs"_a, "loss"_a, array("class_weight"), array("X"),
        array("labels"), array("targets"), array("parameters"), array("slots"), array("best_epoch"), array("which"), array("losses"), array("scores"), "threads"_a,
        "Mean loss and score of each member.");
  m.def("draw", &draw_members, array("recipes"), array("dims"), array("features"), "n_features"_a, "n_outputs"_a, array("parameters"), "threads"_a,
        "Initial weights.");
  m.def("workspace_bytes", &workspace_bytes, array("recipes"), array("dims"), array("features"), "n_features"_a, "n_outputs"_a,
        array("batch_rows"), "Memory of one training thread.");
  m.def("permutation", &row_order, "key"_a, "epoch"_a, "count"_a, "The order of rows in one epoch.");
  m.def("dropout_mask", &dropout_mask, "seed"_a, "step"_a, "layer"_a, "rows"_a, "width"_a, "rate"_a, "True: kept.");
  m.def("activation", &activation_values, "code"_a, array("x"), "Value and derivative of an activation, as the kernel has them.");
}

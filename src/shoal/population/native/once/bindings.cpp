// Python's way in.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/function.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <cstddef>
#include <cstdlib>
#include <initializer_list>
#include <type_traits>

#include "checks.hpp"
#include "driver.hpp"
#include "isa.hpp"
#include "random.hpp"
#include "shared/codes.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace {

using namespace shoal;

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

bool train_members(Matrix<const uint8_t> records, Numbers dims, Numbers features, int64_t n_outputs, int loss,
                   Vector<const float> class_weight, Matrix<const float> X, Vector<const int32_t> labels,
                   Matrix<const float> targets, Numbers train_rows, Numbers train_start, Vector<const float> weight,
                   Numbers valid_rows, Numbers valid_start, Numbers split, bool shuffle, Vector<const uint64_t> order,
                   Numbers horizon, Vector<float> parameters, Vector<float> slots, Vector<int64_t> steps,
                   Vector<int64_t> epochs, Vector<int64_t> best_epoch, Vector<double> best_loss, Vector<uint8_t> status,
                   Numbers which, Numbers until, Matrix<double> log_loss, Matrix<double> log_valid_loss,
                   Matrix<double> log_valid_score, int threads, nb::object progress) {
  check_threads(threads);
  const Networks nets = check_networks(records, dims, features, static_cast<int64_t>(X.shape(1)), n_outputs, loss,
                                       class_weight, static_cast<int64_t>(parameters.shape(0)));
  check_slots(nets, static_cast<int64_t>(slots.shape(0)));
  const Data data = check_data(nets, X, labels, targets, true);
  check_rows(nets, data, train_rows, train_start, weight, valid_rows, valid_start, split);
  require(static_cast<int64_t>(order.shape(0)) == nets.count && length(horizon) == nets.count, "one entry per member");
  for (size_t size : {steps.shape(0), epochs.shape(0), best_epoch.shape(0), best_loss.shape(0), status.shape(0)})
    require(static_cast<int64_t>(size) == nets.count, "the state must have one entry per member");
  require(length(until) == length(which), "one target per member");
  const size_t span = log_loss.shape(1);
  for (const auto& log : {log_loss, log_valid_loss, log_valid_score})
    require(log.shape(0) == which.shape(0) && log.shape(1) == span, "the log has the wrong shape");
  const Rows rows{train_rows.data(), train_start.data(), weight.shape(0) ? weight.data() : nullptr,
                  valid_rows.data(), valid_start.data(), split.data(),
                  shuffle,           order.data(),       horizon.data()};
  const State state{parameters.data(), slots.data(),     steps.data(), epochs.data(),
                    best_epoch.data(), best_loss.data(), status.data()};
  const Work work{which.data(),    until.data(),          length(which),         static_cast<int64_t>(span),
                  log_loss.data(), log_valid_loss.data(), log_valid_score.data()};
  check_work(nets, rows, state, work);
  if (work.count == 0) return true;
  const Kernel& kernel = chosen_kernel();
  const Poll poll = python_poll(progress);
  nb::gil_scoped_release release;
  return train(kernel, nets, data, rows, state, work, threads, poll);
}

State read_state(Vector<const float>& parameters, Vector<const float>& slots, Numbers& best_epoch,
                 const Networks& nets) {
  check_slots(nets, static_cast<int64_t>(slots.shape(0)));
  require(length(best_epoch) == nets.count, "the state must have one entry per member");
  State state{};  // only read
  state.parameters = const_cast<float*>(parameters.data());
  state.slots = const_cast<float*>(slots.data());
  state.best_epoch = const_cast<int64_t*>(best_epoch.data());
  return state;
}

void predict_members(Matrix<const uint8_t> records, Numbers dims, Numbers features, int64_t n_outputs,
                     Matrix<const float> X, Vector<const float> parameters, Vector<const float> slots,
                     Numbers best_epoch, Numbers which,
                     nb::ndarray<float, nb::numpy, nb::ndim<3>, nb::c_contig, nb::device::cpu> out, int threads) {
  check_threads(threads);
  const auto none = Vector<const float>(nullptr, {0});
  const Networks nets = check_networks(records, dims, features, static_cast<int64_t>(X.shape(1)), n_outputs,
                                       SquaredError, none, static_cast<int64_t>(parameters.shape(0)));
  const State state = read_state(parameters, slots, best_epoch, nets);
  const Data data =
      check_data(nets, X, Vector<const int32_t>(nullptr, {0}), Matrix<const float>(nullptr, {0, 0}), false);
  check_indices(which.data(), length(which), nets.count, "which is out of range");
  require(
      out.shape(0) == which.shape(0) && out.shape(1) == X.shape(0) && static_cast<int64_t>(out.shape(2)) == n_outputs,
      "out has the wrong shape");
  const Kernel& kernel = chosen_kernel();
  const nb::object nothing = nb::none();
  const Poll poll = python_poll(nothing);
  nb::gil_scoped_release release;
  predict(kernel, nets, data, state, which.data(), length(which), out.data(), threads, poll);
}

// Members that have rows of their own: those of several folds, whose inputs stand below each other in X.
void predict_members_own_rows(Matrix<const uint8_t> records, Numbers dims, Numbers features, int64_t n_outputs,
                              Matrix<const float> X, Vector<const float> parameters, Vector<const float> slots,
                              Numbers best_epoch, Numbers which, Numbers first_row, Numbers n_rows, Matrix<float> out,
                              int threads) {
  check_threads(threads);
  const auto none = Vector<const float>(nullptr, {0});
  const Networks nets = check_networks(records, dims, features, static_cast<int64_t>(X.shape(1)), n_outputs,
                                       SquaredError, none, static_cast<int64_t>(parameters.shape(0)));
  const State state = read_state(parameters, slots, best_epoch, nets);
  const Data data =
      check_data(nets, X, Vector<const int32_t>(nullptr, {0}), Matrix<const float>(nullptr, {0, 0}), false);
  check_indices(which.data(), length(which), nets.count, "which is out of range");
  require(length(first_row) == length(which) && length(n_rows) == length(which),
          "first_row and n_rows must have one entry per member");
  const int64_t most = static_cast<int64_t>(X.shape(0));
  int64_t total = 0;
  for (int64_t k = 0; k < length(which); ++k) {
    const int64_t first = first_row.data()[k], count = n_rows.data()[k];
    require(first >= 0 && count >= 0 && count <= most && first <= most - count, "rows are out of range");
    total += count;
  }
  require(static_cast<int64_t>(out.shape(0)) == total && static_cast<int64_t>(out.shape(1)) == n_outputs,
          "out has the wrong shape");
  const Kernel& kernel = chosen_kernel();
  const nb::object nothing = nb::none();
  const Poll poll = python_poll(nothing);
  nb::gil_scoped_release release;
  predict_own_rows(kernel, nets, data, state, which.data(), length(which), first_row.data(), n_rows.data(), out.data(),
                   threads, poll);
}

void evaluate_members(Matrix<const uint8_t> records, Numbers dims, Numbers features, int64_t n_outputs, int loss,
                      Vector<const float> class_weight, Matrix<const float> X, Vector<const int32_t> labels,
                      Matrix<const float> targets, Vector<const float> parameters, Vector<const float> slots,
                      Numbers best_epoch, Numbers which, Vector<double> losses, Vector<double> scores, int threads) {
  check_threads(threads);
  const Networks nets = check_networks(records, dims, features, static_cast<int64_t>(X.shape(1)), n_outputs, loss,
                                       class_weight, static_cast<int64_t>(parameters.shape(0)));
  const State state = read_state(parameters, slots, best_epoch, nets);
  const Data data = check_data(nets, X, labels, targets, true);
  check_indices(which.data(), length(which), nets.count, "which is out of range");
  require(losses.shape(0) == which.shape(0) && scores.shape(0) == which.shape(0), "one result per member");
  const Kernel& kernel = chosen_kernel();
  const nb::object nothing = nb::none();
  const Poll poll = python_poll(nothing);
  nb::gil_scoped_release release;
  evaluate(kernel, nets, data, state, which.data(), length(which), losses.data(), scores.data(), threads, poll);
}

void draw_members(Matrix<const uint8_t> records, Numbers dims, Numbers features, int64_t n_features, int64_t n_outputs,
                  Vector<float> parameters, int threads) {
  check_threads(threads);
  const Networks nets = check_networks(records, dims, features, n_features, n_outputs, SquaredError,
                                       Vector<const float>(nullptr, {0}), static_cast<int64_t>(parameters.shape(0)));
  nb::gil_scoped_release release;
  draw(nets, parameters.data(), threads);
}

int64_t workspace_bytes(Matrix<const uint8_t> records, Numbers dims, Numbers features, int64_t n_features,
                        int64_t n_outputs, Numbers batch_rows) {
  const Networks nets = check_networks(records, dims, features, n_features, n_outputs, SquaredError,
                                       Vector<const float>(nullptr, {0}), int64_t{1} << 62);
  require(length(batch_rows) == nets.count, "one batch size per member");
  return thread_bytes(chosen_kernel(), nets, batch_rows.data());
}

template <class T>
T* new_array(size_t count) {
  return new T[count ? count : 1];
}

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

// numpy's name of a field's type.
template <class T>
constexpr const char* type_name() {
  if constexpr (std::is_same_v<T, int32_t>)
    return "int32";
  else if constexpr (std::is_same_v<T, int64_t>)
    return "int64";
  else if constexpr (std::is_same_v<T, uint64_t>)
    return "uint64";
  else {
    static_assert(std::is_same_v<T, double>, "a type that numpy's records do not have here");
    return "float64";
  }
}

// (name, type, offset) of each field of a record.
nb::tuple record_fields() {
  nb::list fields;
#define SHOAL_FIELD(type, name) fields.append(nb::make_tuple(#name, type_name<type>(), offsetof(MemberRecord, name)));
  SHOAL_MEMBER_FIELDS(SHOAL_FIELD)
#undef SHOAL_FIELD
  return nb::tuple(fields);
}

nb::tuple tuple_of(std::initializer_list<const char*> words) {
  nb::list found;
  for (const char* word : words) found.append(word);
  return nb::tuple(found);
}

// The words of each kind of code, in the order of the codes.
nb::dict codes() {
  nb::dict words;
#define SHOAL_WORD(name, word) word,
  words["activation"] = tuple_of({SHOAL_ACTIVATIONS(SHOAL_WORD)});
  words["optimizer"] = tuple_of({SHOAL_OPTIMIZERS(SHOAL_WORD)});
  words["schedule"] = tuple_of({SHOAL_SCHEDULES(SHOAL_WORD)});
  words["init"] = tuple_of({SHOAL_INITS(SHOAL_WORD)});
  words["loss"] = tuple_of({SHOAL_LOSSES(SHOAL_WORD)});
  words["status"] = tuple_of({SHOAL_STATUSES(SHOAL_WORD)});
#undef SHOAL_WORD
  return words;
}

// Arrays are taken as they are or refused: a converted copy of one that is written to would lose what was written.
auto array(const char* name) { return nb::arg(name).noconvert(); }

}  // namespace

NB_MODULE(_native, m) {
  m.doc() = "Shoal's compiled kernel. Use shoal.Population; nothing here is public.";
  m.attr("RECORD_FIELDS") = record_fields();
  m.attr("RECORD_SIZE") = sizeof(shoal::MemberRecord);
  m.attr("CODES") = codes();
  m.def(
      "instruction_set", [] { return std::string(chosen_kernel().name); },
      "The kernel in use; SHOAL_ISA names another.");
  m.def(
      "instruction_sets",
      [] {
        std::vector<std::string> names;
        for (const shoal::Kernel* kernel : shoal::usable_kernels()) names.emplace_back(kernel->name);
        return names;
      },
      "Kernels that run on this machine, the fastest first.");
  m.def("train", &train_members, array("records"), array("dims"), array("features"), "n_outputs"_a, "loss"_a,
        array("class_weight"), array("X"), array("labels"), array("targets"), array("train_rows"), array("train_start"),
        array("weight"), array("valid_rows"), array("valid_start"), array("split"), "shuffle"_a, array("order"),
        array("horizon"), array("parameters"), array("slots"), array("steps"), array("epochs"), array("best_epoch"),
        array("best_loss"), array("status"), array("which"), array("until"), array("log_loss"), array("log_valid_loss"),
        array("log_valid_score"), "threads"_a, "progress"_a.none(), "Train members in place; False when told to stop.");
  m.def("predict", &predict_members, array("records"), array("dims"), array("features"), "n_outputs"_a, array("X"),
        array("parameters"), array("slots"), array("best_epoch"), array("which"), array("out"), "threads"_a,
        "Fill out (members, rows, outputs).");
  m.def("predict_own_rows", &predict_members_own_rows, array("records"), array("dims"), array("features"),
        "n_outputs"_a, array("X"), array("parameters"), array("slots"), array("best_epoch"), array("which"),
        array("first_row"), array("n_rows"), array("out"), "threads"_a, "Fill out (members, rows, outputs).");
  m.def("evaluate", &evaluate_members, array("records"), array("dims"), array("features"), "n_outputs"_a, "loss"_a,
        array("class_weight"), array("X"), array("labels"), array("targets"), array("parameters"), array("slots"),
        array("best_epoch"), array("which"), array("losses"), array("scores"), "threads"_a,
        "Mean loss and score of each member.");
  m.def("draw", &draw_members, array("records"), array("dims"), array("features"), "n_features"_a, "n_outputs"_a,
        array("parameters"), "threads"_a, "Initial weights.");
  m.def("workspace_bytes", &workspace_bytes, array("records"), array("dims"), array("features"), "n_features"_a,
        "n_outputs"_a, array("batch_rows"), "Memory of one training thread.");
  m.def("permutation", &row_order, "key"_a, "epoch"_a, "count"_a, "The order of rows in one epoch.");
}

// Everything that the kernel indexes with is checked here, once, before any of it runs.
#pragma once
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include "problem.hpp"

namespace shoal {

template <class T>
using Vector = nanobind::ndarray<T, nanobind::numpy, nanobind::ndim<1>, nanobind::c_contig, nanobind::device::cpu>;
template <class T>
using Matrix = nanobind::ndarray<T, nanobind::numpy, nanobind::ndim<2>, nanobind::c_contig, nanobind::device::cpu>;
using Numbers = Vector<const int64_t>;

// Throws std::invalid_argument with the rule unless it holds.
void require(bool holds, const char* rule);

inline int64_t length(const Numbers& v) { return static_cast<int64_t>(v.shape(0)); }

void check_indices(const int64_t* values, int64_t count, int64_t below, const char* rule);

void check_threads(int threads);

// Records, dims and features; `n_parameters`: floats in the buffer of parameters.
Networks check_networks(const Matrix<const uint8_t>& records, const Numbers& dims, const Numbers& features,
                        int64_t n_features, int64_t n_outputs, int loss, const Vector<const float>& class_weight,
                        int64_t n_parameters);

void check_slots(const Networks& nets, int64_t n_slots);

// `required`: outputs are scored, so there must be a target for each row.
Data check_data(const Networks& nets, const Matrix<const float>& X, const Vector<const int32_t>& labels,
                const Matrix<const float>& targets, bool required);

// Splits of the rows into training and validation, and each member's split.
void check_rows(const Networks& nets, const Data& data, const Numbers& train_rows, const Numbers& train_start,
                const Vector<const float>& weight, const Numbers& valid_rows, const Numbers& valid_start,
                const Numbers& split);

// Which members are trained how far.
void check_work(const Networks& nets, const Rows& rows, const State& state, const Work& work);

}  // namespace shoal

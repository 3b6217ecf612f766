// Many networks over many rows: what Python calls.
#pragma once
#include <cstdint>

#include "problem.hpp"
#include "shared/kernel.hpp"
#include "tasks.hpp"

namespace shoal {

// True when every member got where it should, false when told to stop. Members always stand at the end of an epoch.
bool train(const Kernel&, const Networks&, const Data&, const Rows&, const State&, const Work&, int threads,
           const Poll&);

void predict(const Kernel&, const Networks&, const Data&, const State&, const int64_t* which, int64_t count, float* out,
             int threads, const Poll&);
// Like predict, but member which[k] predicts rows first_row[k] to first_row[k] + n_rows[k]; outputs one after the
// other.
void predict_own_rows(const Kernel&, const Networks&, const Data&, const State&, const int64_t* which, int64_t count,
                      const int64_t* first_row, const int64_t* n_rows, float* out, int threads, const Poll& poll);

void evaluate(const Kernel&, const Networks&, const Data&, const State&, const int64_t* which, int64_t count,
              double* loss, double* score, int threads, const Poll&);

void draw(const Networks&, float* parameters, int threads);

// Bytes that one thread of `train` needs at most.
int64_t thread_bytes(const Kernel&, const Networks&, const int64_t* batch_rows);

}  // namespace shoal

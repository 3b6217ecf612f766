// What a member is, field for field as engines/program.py writes it. The list is written once: it makes the struct
// here, and its names, types and offsets are compared with Python's when shoal is imported (engines/native.py).
#pragma once
#include <cstdint>

#define SHOAL_MEMBER_FIELDS(FIELD) \
  FIELD(int64_t, dims_start)       \
  FIELD(int64_t, features_start)   \
  FIELD(int64_t, parameters)       \
  FIELD(int64_t, slots)            \
  FIELD(int64_t, slot_size)        \
  FIELD(int64_t, batch_size)       \
  FIELD(uint64_t, seed)            \
  FIELD(int64_t, epochs)           \
  FIELD(int64_t, patience)         \
  FIELD(int32_t, n_layers)         \
  FIELD(int32_t, activation)       \
  FIELD(int32_t, optimizer)        \
  FIELD(int32_t, init)             \
  FIELD(int32_t, schedule)         \
  FIELD(int32_t, optimizer_slots)  \
  FIELD(double, learning_rate)     \
  FIELD(double, weight_decay)      \
  FIELD(double, momentum)          \
  FIELD(double, dropout)           \
  FIELD(double, warmup)            \
  FIELD(double, clip)              \
  FIELD(double, label_smoothing)   \
  FIELD(double, beta2)

namespace shoal {

struct MemberRecord {
#define SHOAL_DECLARE(type, name) type name;
  SHOAL_MEMBER_FIELDS(SHOAL_DECLARE)
#undef SHOAL_DECLARE
};

}  // namespace shoal

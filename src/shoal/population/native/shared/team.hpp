// The threads that share the work on one network. What they compute does not depend on who computes it.
#pragma once
#include <cstdint>

namespace shoal {

// Part `number` of some work, done by one of the threads.
using Part = void (*)(const void* work, int thread, int64_t number);

struct Team {
  int threads;
  // Calls part(work, thread, number) once for every number below `count`; null if there is only one thread.
  void (*run)(void* self, int64_t count, Part part, const void* work);
  void* self;
};

constexpr Team kAlone{1, nullptr, nullptr};

}  // namespace shoal

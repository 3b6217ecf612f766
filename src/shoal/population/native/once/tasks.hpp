// Threads for one call.
#pragma once
#include <atomic>
#include <cstdint>
#include <functional>

namespace shoal {

// Called from the calling thread every few tens of milliseconds with the member-epochs done; true: stop.
using Poll = std::function<bool(int64_t)>;

// Runs task(thread, number) for every number below `count`, taken in order from an atomic counter. The calling thread
// only polls, so that it can listen to signals. The first exception stops the rest and is thrown again here.
bool run_tasks(int64_t count, int threads, std::atomic<bool>& stop, const std::atomic<int64_t>& done, const Poll& poll,
               const std::function<void(int, int64_t)>& task);

// Numbers too small to be normal are as good as zero, and a hundred times slower: flush them, the same on every thread.
void flush_denormals();

}  // namespace shoal

#include "tasks.hpp"

#include <chrono>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

#if defined(__SSE2__)
#include <xmmintrin.h>
#endif

namespace shoal {

void flush_denormals() {
#if defined(__SSE2__)
  _mm_setcsr(_mm_getcsr() | 0x8040);
#elif defined(__aarch64__)
  uint64_t control;
  asm volatile("mrs %0, fpcr" : "=r"(control));
  asm volatile("msr fpcr, %0" : : "r"(control | (1ull << 24)));
#endif
}

bool run_tasks(int64_t count, int threads, std::atomic<bool>& stop, const std::atomic<int64_t>& done, const Poll& poll,
               const std::function<void(int, int64_t)>& task) {
  std::atomic<int64_t> next{0};
  std::mutex mutex;
  std::condition_variable ended;
  int running = 0;
  std::exception_ptr error;
  const auto work = [&](int thread) {
    flush_denormals();
    try {
      for (int64_t i; !stop.load(std::memory_order_relaxed) && (i = next.fetch_add(1)) < count;) task(thread, i);
    } catch (...) {
      const std::lock_guard<std::mutex> lock(mutex);
      if (!error) error = std::current_exception();
      stop = true;
    }
    const std::lock_guard<std::mutex> lock(mutex);
    --running;
    ended.notify_all();
  };
  std::vector<std::thread> pool;
  const auto join = [&] {
    for (auto& thread : pool) thread.join();
  };
  try {
    for (int t = 0; t < threads && t < count; ++t) {
      {
        const std::lock_guard<std::mutex> lock(mutex);
        ++running;
      }
      pool.emplace_back(work, t);
    }
    std::unique_lock<std::mutex> lock(mutex);
    while (running) {
      ended.wait_for(lock, std::chrono::milliseconds(40));
      if (!running) break;
      lock.unlock();
      if (poll && poll(done.load(std::memory_order_relaxed))) stop = true;
      lock.lock();
    }
  } catch (...) {
    stop = true;
    join();
    throw;
  }
  join();
  if (error) std::rethrow_exception(error);
  return !stop.load();
}

}  // namespace shoal

#include "team_threads.hpp"

#include <chrono>

#include "tasks.hpp"

#if defined(__SSE2__)
#include <immintrin.h>
#endif

namespace shoal {
namespace {

constexpr uint64_t kEnded = ~uint64_t{0};
constexpr int kSpins = 200;                              // some microseconds: most waits are shorter
constexpr auto kAwake = std::chrono::microseconds(500);  // then others may have the core for long

void pause() {
#if defined(__SSE2__)
  _mm_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// Waits until `ready`, without sleeping: false if that takes longer than `limit`.
template <class Ready>
bool wait_awake(const Ready& ready, std::chrono::steady_clock::duration limit) {
  for (int i = 0; i < kSpins; ++i) {
    if (ready()) return true;
    pause();
  }
  const auto begun = std::chrono::steady_clock::now();
  while (!ready()) {
    if (std::chrono::steady_clock::now() - begun > limit) return false;
    std::this_thread::yield();
  }
  return true;
}

}  // namespace

TeamThreads::TeamThreads(int threads) : threads_(threads), parts_(new Parts[threads]) {
  try {
    for (int thread = 1; thread < threads; ++thread) others_.emplace_back([this, thread] { follow(thread); });
  } catch (...) {
    end();
    throw;
  }
}

TeamThreads::~TeamThreads() { end(); }

Team TeamThreads::team() {
  const auto run = [](void* self, int64_t count, Part part, const void* work) {
    static_cast<TeamThreads*>(self)->run(count, part, work);
  };
  return threads_ == 1 ? kAlone : Team{threads_, run, this};
}

void TeamThreads::run(int64_t count, Part part, const void* work) {
  part_ = part;
  work_ = work;
  for (int64_t thread = 0; thread < threads_; ++thread) {
    parts_[thread].next.store(count * thread / threads_, std::memory_order_relaxed);
    parts_[thread].end = count * (thread + 1) / threads_;
  }
  open_round();
  take(0);
  round_.fetch_add(1);  // closed: who is not inside by now stays outside
  const auto alone = [&] { return inside_.load() == 0; };
  while (!wait_awake(alone, std::chrono::hours(1))) continue;
}

void TeamThreads::open_round() {
  round_.fetch_add(1);
  if (sleeping_.load() == 0) return;
  { const std::lock_guard<std::mutex> lock(mutex_); }  // who was about to sleep either sleeps now or has seen the work
  woken_.notify_all();
}

void TeamThreads::take(int thread) {
  for (int i = 0; i < threads_; ++i) {
    Parts& mine = parts_[(thread + i) % threads_];
    for (int64_t number; (number = mine.next.fetch_add(1, std::memory_order_relaxed)) < mine.end;)
      part_(work_, thread, number);
  }
}

void TeamThreads::follow(int thread) {
  flush_denormals();
  for (uint64_t round = 0; (round = next_round(round)) != kEnded;) {
    inside_.fetch_add(1);
    if (round_.load() == round) take(thread);
    inside_.fetch_sub(1);
  }
}

// Waits for work that is newer than `last`.
uint64_t TeamThreads::next_round(uint64_t last) {
  uint64_t round = last;
  const auto ready = [&] {
    round = round_.load();
    return round != last && round % 2 == 1;  // kEnded is odd
  };
  if (wait_awake(ready, kAwake)) return round;
  std::unique_lock<std::mutex> lock(mutex_);
  sleeping_.fetch_add(1);
  woken_.wait(lock, ready);
  sleeping_.fetch_sub(1);
  return round;
}

void TeamThreads::end() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    round_.store(kEnded);
  }
  woken_.notify_all();
  for (std::thread& other : others_) other.join();
}

}  // namespace shoal

// Threads that share the work on one network.
#pragma once
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "shared/team.hpp"

namespace shoal {

// The thread that asks works, too; the others wait for work until this object ends. A thread takes the parts that are
// its own by number, so that it finds in its cache what it wrote there before, and then those that others have not
// begun. So nobody waits for a thread that the system does not run, unless it is in the middle of a part.
class TeamThreads {
 public:
  explicit TeamThreads(int threads);
  ~TeamThreads();
  Team team();

 private:
  struct alignas(64) Parts {  // a cache line each
    std::atomic<int64_t> next{0};
    int64_t end = 0;
  };
  void run(int64_t count, Part part, const void* work);
  void take(int thread);
  void follow(int thread);
  uint64_t next_round(uint64_t last);
  void open_round();
  void end();

  const int threads_;
  std::unique_ptr<Parts[]> parts_;
  Part part_ = nullptr;
  const void* work_ = nullptr;
  alignas(64) std::atomic<uint64_t> round_{0};  // odd: there is work; kEnded: there will be none
  alignas(64) std::atomic<int> inside_{0};      // threads that may be taking parts
  std::atomic<int> sleeping_{0};
  std::mutex mutex_;
  std::condition_variable woken_;
  std::vector<std::thread> others_;
};

}  // namespace shoal

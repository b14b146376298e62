#include "threads.hpp"

#include <pthread.h>

#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

#include "tuning.hpp"

namespace statehal {
namespace {

// Workers sleep between loops. One loop runs at a time: a second caller, or one inside a loop, does its own items alone.
class Workers {
 public:
  void run(int64_t items, int64_t grain, int threads, void (*body)(const void*, int64_t, int64_t), const void* state) {
    const int64_t grains = (items + grain - 1) / grain;
    if (threads > grains) threads = static_cast<int>(grains);
    std::unique_lock<std::mutex> turn(turn_, std::try_to_lock);
    if (threads < 2 || !turn.owns_lock()) {
      body(state, 0, items);
      return;
    }
    const int parts = threads;
    while (static_cast<int>(workers_.size()) < parts - 1) {
      const int number = static_cast<int>(workers_.size()) + 1;
      workers_.emplace_back([this, number] { serve(number); });
    }
    {
      std::lock_guard<std::mutex> lock(mutex_);
      items_ = items, grain_ = grain, parts_ = parts, body_ = body, state_ = state;
      left_ = parts - 1;
      ++round_;
    }
    begin_.notify_all();
    part(0);
    std::unique_lock<std::mutex> lock(mutex_);
    done_.wait(lock, [this] { return left_ == 0; });
  }

 private:
  void part(int number) {
    const int64_t grains = (items_ + grain_ - 1) / grain_;
    const int64_t first = grains * number / parts_ * grain_;
    int64_t last = grains * (number + 1) / parts_ * grain_;
    if (last > items_) last = items_;
    body_(state_, first, last);
  }

  void serve(int number) {
    uint64_t seen = 0;
    for (;;) {
      std::unique_lock<std::mutex> lock(mutex_);
      begin_.wait(lock, [&] { return round_ != seen; });
      seen = round_;
      if (number >= parts_) continue;
      lock.unlock();
      part(number);
      lock.lock();
      if (--left_ == 0) done_.notify_one();
    }
  }

  std::mutex turn_, mutex_;
  std::condition_variable begin_, done_;
  std::vector<std::thread> workers_;
  uint64_t round_ = 0;
  int64_t items_ = 0, grain_ = 1;
  int parts_ = 1, left_ = 0;
  void (*body_)(const void*, int64_t, int64_t) = nullptr;
  const void* state_ = nullptr;
};

Workers* workers = nullptr;

void forget() { workers = nullptr; }  // a forked child has none of its parent's threads

std::mutex making;

Workers& get() {
  std::lock_guard<std::mutex> lock(making);
  if (workers == nullptr) {
    static const int registered = pthread_atfork(nullptr, nullptr, forget);
    (void)registered;
    workers = new Workers;  // never deleted: its threads may sleep in it until the process ends
  }
  return *workers;
}

}  // namespace

int threads_for(int64_t bytes, int threads) {
  const int64_t worth = bytes / THREAD_BYTES;
  return worth < 1 ? 1 : worth < threads ? static_cast<int>(worth) : threads;
}

void parallel_for(int64_t items, int64_t grain, int threads, void (*body)(const void*, int64_t, int64_t), const void* state) {
  if (items <= 0) return;
  if (threads < 2 || items <= grain) {
    body(state, 0, items);
  } else {
    get().run(items, grain, threads, body, state);
  }
}

}  // namespace statehal

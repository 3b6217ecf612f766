#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <numeric>
#include <vector>

#include "driver.hpp"
#include "groups.hpp"
#include "packing.hpp"
#include "random.hpp"
#include "score.hpp"
#include "team_threads.hpp"

namespace shoal {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

// A member while it is being trained: its numbers in the kernel's form, and what has happened to it so far.
struct Trainee {
  int64_t position, member;
  Net net;
  float* best;  // best weights so far, or null
  int64_t steps, epochs, best_epoch;
  int64_t column, kept;  // of the log: where this epoch goes, and how many columns have been written back
  double best_loss, loss;
  uint8_t status;
  bool changed_best;
  int64_t warmup_steps, schedule_steps;
  Update update;  // what does not depend on the step is written once
};

// What Adam divides its moments by after `steps` updates. Members of a group mostly ask for the same.
struct AdamCorrection {
  int64_t steps = 0;
  double beta2 = 0, first = 0, second_root = 0;
  void find(int64_t wanted, double decay) {
    if (steps == wanted && beta2 == decay) return;
    steps = wanted;
    beta2 = decay;
    first = 1 - std::pow(0.9, static_cast<double>(wanted));
    second_root = std::sqrt(1 - std::pow(beta2, static_cast<double>(wanted)));
  }
};

class Trainer {
 public:
  Trainer(const Kernel& kernel, const Networks& nets, const Data& data, const Rows& rows, const State& state,
          const Work& work, std::atomic<bool>& stop, std::atomic<int64_t>& done)
      : kernel_(kernel), nets_(nets), data_(data), rows_(rows), state_(state), work_(work), stop_(stop), done_(done) {}

  void train_group(const Group& group, const std::vector<double>& variances, const Team& team) {
    team_ = team;
    const int64_t split = rows_.split[work_.which[group.front()]];
    variance_ = variances[split];
    train_ = rows_.train + rows_.train_start[split];
    n_train_ = rows_.train_start[split + 1] - rows_.train_start[split];
    weight_ = rows_.weight ? rows_.weight + rows_.train_start[split] : nullptr;
    valid_ = rows_.valid + rows_.valid_start[split];
    n_valid_ = rows_.valid_start[split + 1] - rows_.valid_start[split];
    open(group);
    while (!live_.empty() && !stop_.load(std::memory_order_relaxed)) {
      if (!train_epoch() || !validate()) break;
      end_epoch();
    }
    if (!live_.empty()) abandon();
  }

 private:
  // Bring the members of a group into the kernel's form.
  void open(const Group& group) {
    const MemberRecord& first = nets_.records[work_.which[group.front()]];
    batch_size_ = std::min(first.batch_size, n_train_);
    const int64_t* columns = first.features_start >= 0 ? nets_.features + first.features_start : nullptr;
    const int64_t capacity = std::max(batch_size_, std::min(n_valid_, kBlockRows));
    shared_.prepare(nets_, data_, columns, nets_.dims[first.dims_start], capacity);
    int64_t floats = 0, scratch = 0;
    for (int64_t k : group) {
      const MemberRecord& r = nets_.records[work_.which[k]];
      const Shape shape = nets_.shape(work_.which[k]);
      floats += shape.packed_floats() * (1 + r.optimizer_slots + (r.patience > 0) + needs_gradient(r, shape));
      scratch = std::max(scratch, kernel_.scratch_floats(shape, capacity, team_.threads));
    }
    scratch_ = scratch_arena_.reserve(scratch);
    float* memory = packed_.reserve(floats);
    std::memset(memory, 0, floats * sizeof(float));
    trainees_.clear();
    for (int64_t k : group) trainees_.push_back(take(k, memory));
    live_.resize(trainees_.size());
    std::iota(live_.begin(), live_.end(), 0);
    order_.resize(n_train_);
    written_ = std::chrono::steady_clock::now();
  }

  bool needs_gradient(const MemberRecord& r, const Shape& shape) const {
    return r.clip > 0 || batch_size_ > block_rows(shape);
  }

  Trainee take(int64_t position, float*& memory) {
    const int64_t i = work_.which[position];
    const MemberRecord& r = nets_.records[i];
    const Shape shape = nets_.shape(i);
    const int64_t size = shape.packed_floats();
    const auto next = [&](bool wanted) {
      float* here = wanted ? memory : nullptr;
      if (wanted) memory += size;
      return here;
    };
    Trainee t{};
    t.position = position;
    t.member = i;
    t.net = {shape,
             next(true),
             {next(r.optimizer_slots > 0), next(r.optimizer_slots > 1)},
             next(needs_gradient(r, shape)),
             block_rows(shape)};
    t.best = next(r.patience > 0);
    pack(shape, state_.parameters + r.parameters, t.net.weights);
    for (int s = 0; s < r.optimizer_slots; ++s) pack(shape, state_.slots + r.slots + s * r.slot_size, t.net.slots[s]);
    t.steps = state_.steps[i];
    t.epochs = state_.epochs[i];
    t.best_epoch = state_.best_epoch[i];
    t.best_loss = state_.best_loss[i];
    t.status = state_.status[i];
    const int64_t per_epoch = (n_train_ + batch_size_ - 1) / batch_size_;
    t.warmup_steps = static_cast<int64_t>(std::nearbyint(r.warmup * static_cast<double>(per_epoch)));
    t.schedule_steps = rows_.horizon[i] * per_epoch;
    t.update = constant_update(r);
    return t;
  }

  // A short epoch is finished and kept; a long one is given up, so that a stop takes effect at once.
  bool must_stop() const {
    return stop_.load(std::memory_order_relaxed) &&
           std::chrono::steady_clock::now() - begun_ > std::chrono::milliseconds(100);
  }

  bool train_epoch() {
    begun_ = std::chrono::steady_clock::now();
    const Trainee& any = trainees_[live_.front()];  // all live members of a group have done equally many epochs
    const int64_t* order = nullptr;
    if (rows_.shuffle) {
      permutation(rows_.order[any.member], any.epochs, n_train_, order_.data());
      order = order_.data();
    }
    for (int k : live_) trainees_[k].loss = 0;
    double norm = 0;
    for (int64_t first = 0; first < n_train_; first += batch_size_) {
      const Batch& batch =
          shared_.gather(train_, weight_, order, first, std::min(batch_size_, n_train_ - first), team_);
      norm += shared_.norm();
      for (int k : live_) {
        if (must_stop()) return false;
        Trainee& t = trainees_[k];
        t.loss += kernel_.step(t.net, batch, update_for(t), scratch_, team_);
        ++t.steps;
      }
    }
    for (int k : live_) {
      trainees_[k].loss /= norm;
      log(work_.loss, trainees_[k]) = trainees_[k].loss;
    }
    return !must_stop();  // the last step may have been given up
  }

  Update constant_update(const MemberRecord& r) const {
    Update u{};
    u.optimizer = r.optimizer;
    u.weight_decay = static_cast<float>(r.weight_decay);
    u.momentum = static_cast<float>(r.momentum);
    u.beta2 = static_cast<float>(r.beta2);
    u.beta2_rest = static_cast<float>(1 - r.beta2);
    u.clip = static_cast<float>(r.clip);
    u.label_smoothing = static_cast<float>(r.label_smoothing);
    u.dropout_threshold = static_cast<int32_t>(std::nearbyint(r.dropout * 16777216.0));
    u.dropout_scale = static_cast<float>(1 / (1 - r.dropout));
    u.seed = r.seed;
    u.give_up = [](const void* trainer) { return static_cast<const Trainer*>(trainer)->must_stop(); };
    u.asked = this;
    return u;
  }

  const Update& update_for(Trainee& t) {
    const MemberRecord& r = nets_.records[t.member];
    const double rate = r.learning_rate * schedule(r, t);
    t.update.learning_rate = static_cast<float>(rate);
    if (r.optimizer != Sgd) {
      correction_.find(t.steps + 1, r.beta2);
      t.update.adam_step = static_cast<float>(rate / correction_.first);
      t.update.adam_root = static_cast<float>(1 / correction_.second_root);
    }
    t.update.step = t.steps;
    return t.update;
  }

  static double schedule(const MemberRecord& r, const Trainee& t) {
    if (t.steps < t.warmup_steps) return static_cast<double>(t.steps + 1) / static_cast<double>(t.warmup_steps);
    if (r.schedule != Cosine) return 1;
    const double length = static_cast<double>(std::max<int64_t>(1, t.schedule_steps - t.warmup_steps));
    const double done = std::min(1.0, static_cast<double>(t.steps - t.warmup_steps) / length);
    return 0.5 * (1 + std::cos(3.14159265358979323846 * done));
  }

  bool validate() {
    if (n_valid_ == 0) return true;
    std::vector<Score> scores(live_.size());
    for (int64_t first = 0; first < n_valid_; first += kBlockRows) {
      const Batch& batch =
          shared_.gather(valid_, nullptr, nullptr, first, std::min(kBlockRows, n_valid_ - first), team_);
      for (size_t k = 0; k < live_.size(); ++k) {
        if (must_stop()) return false;
        const Trainee& t = trainees_[live_[k]];
        if (std::isfinite(t.loss)) scores[k].add(kernel_, t.net, shared_, batch, scratch_, team_);
      }
    }
    for (size_t k = 0; k < live_.size(); ++k) {
      const Trainee& t = trainees_[live_[k]];
      if (!std::isfinite(t.loss)) continue;
      log(work_.valid_loss, t) = scores[k].mean_loss();
      log(work_.valid_score, t) = scores[k].score(nets_.loss, n_valid_, nets_.n_outputs, variance_);
    }
    return true;
  }

  double& log(double* table, const Trainee& t) const { return table[t.position * work_.span + t.column]; }

  void end_epoch() {
    for (int k : live_) judge(trainees_[k]);
    done_.fetch_add(static_cast<int64_t>(live_.size()), std::memory_order_relaxed);
    const auto over = [&](int k) {
      const Trainee& t = trainees_[k];
      return t.status != Active || t.epochs >= work_.until[t.position];
    };
    const auto now = std::chrono::steady_clock::now();
    const bool due = stop_.load(std::memory_order_relaxed) || now - written_ > std::chrono::milliseconds(200);
    for (int k : live_)
      if (due || over(k)) write_back(trainees_[k]);
    if (due) written_ = now;
    live_.erase(std::remove_if(live_.begin(), live_.end(), over), live_.end());
  }

  // The end of a member's epoch: has it diverged, improved, lost patience, or finished?
  void judge(Trainee& t) {
    const MemberRecord& r = nets_.records[t.member];
    const double valid = n_valid_ > 0 ? log(work_.valid_loss, t) : 0;
    if (!std::isfinite(t.loss) || !std::isfinite(valid) || !finite(t.net)) {
      // Infinitely bad, so that nobody takes it for the best; NaN means that nothing was measured.
      log(work_.loss, t) = kInfinity;
      if (n_valid_ > 0) {
        log(work_.valid_loss, t) = kInfinity;
        log(work_.valid_score, t) = -kInfinity;
      }
      t.status = Diverged;
    }
    ++t.epochs;
    ++t.column;
    if (t.status == Diverged) return;
    if (r.patience > 0) {
      if (valid < t.best_loss) {
        t.best_loss = valid;
        t.best_epoch = t.epochs;
        t.changed_best = true;
        std::memcpy(t.best, t.net.weights, t.net.shape.packed_floats() * sizeof(float));
      } else if (t.epochs - t.best_epoch >= r.patience) {
        t.status = Stopped;
        return;
      }
    }
    if (r.epochs >= 0 && t.epochs >= r.epochs) t.status = Finished;
  }

  // Told to stop: what was not written back never happened, in the log either.
  void abandon() {
    for (const Trainee& t : trainees_) {
      for (double* table : {work_.loss, work_.valid_loss, work_.valid_score}) {
        double* row = table + t.position * work_.span;
        std::fill(row + t.kept, row + work_.span, kNaN);
      }
    }
  }

  void write_back(Trainee& t) {
    const MemberRecord& r = nets_.records[t.member];
    unpack(t.net.shape, state_.parameters + r.parameters, t.net.weights);
    for (int s = 0; s < r.optimizer_slots; ++s)
      unpack(t.net.shape, state_.slots + r.slots + s * r.slot_size, t.net.slots[s]);
    if (t.changed_best) unpack(t.net.shape, state_.slots + r.slots + r.optimizer_slots * r.slot_size, t.best);
    t.changed_best = false;
    t.kept = t.column;
    state_.steps[t.member] = t.steps;
    state_.epochs[t.member] = t.epochs;
    state_.best_epoch[t.member] = t.best_epoch;
    state_.best_loss[t.member] = t.best_loss;
    state_.status[t.member] = t.status;
  }

  const Kernel& kernel_;
  const Networks& nets_;
  const Data& data_;
  const Rows& rows_;
  const State& state_;
  const Work& work_;
  std::atomic<bool>& stop_;
  std::atomic<int64_t>& done_;

  SharedBatch shared_;
  Arena packed_, scratch_arena_;
  float* scratch_ = nullptr;
  Team team_ = kAlone;
  AdamCorrection correction_;
  std::vector<Trainee> trainees_;
  std::vector<int> live_;
  std::vector<int64_t> order_;
  const int64_t *train_ = nullptr, *valid_ = nullptr;
  const float* weight_ = nullptr;
  int64_t n_train_ = 0, n_valid_ = 0, batch_size_ = 0;
  double variance_ = kNaN;
  std::chrono::steady_clock::time_point written_, begun_;
};

}  // namespace

bool train(const Kernel& kernel, const Networks& nets, const Data& data, const Rows& rows, const State& state,
           const Work& work, int threads, const Poll& poll) {
  const std::vector<Group> groups = make_groups(nets, rows, state, work, threads);
  std::vector<double> variances;
  int64_t n_splits = 0;
  for (int64_t k = 0; k < work.count; ++k) n_splits = std::max(n_splits, rows.split[work.which[k]] + 1);
  for (int64_t s = 0; s < n_splits; ++s)
    variances.push_back(
        target_variance(nets, data, rows.valid + rows.valid_start[s], rows.valid_start[s + 1] - rows.valid_start[s]));
  std::atomic<bool> stop{false};
  std::atomic<int64_t> done{0};
  std::vector<std::unique_ptr<Trainer>> trainers;
  for (int t = 0; t < threads; ++t)
    trainers.push_back(std::make_unique<Trainer>(kernel, nets, data, rows, state, work, stop, done));
  const int cores = std::max(1, std::min(threads, static_cast<int>(std::thread::hardware_concurrency())));
  const int64_t shared = count_shared(nets, rows, state, work, groups, cores);
  const auto train_shared = [&](int, int64_t) {
    TeamThreads together(cores);
    for (int64_t g = 0; g < shared && !stop; ++g) trainers[0]->train_group(groups[g], variances, together.team());
  };
  const auto train_own = [&](int thread, int64_t task) {
    trainers[thread]->train_group(groups[shared + task], variances, kAlone);
  };
  bool finished = shared == 0 || run_tasks(1, 1, stop, done, poll, train_shared);
  if (finished)
    finished = run_tasks(static_cast<int64_t>(groups.size()) - shared, threads, stop, done, poll, train_own);
  if (poll) poll(done.load());
  return finished;
}

int64_t thread_bytes(const Kernel& kernel, const Networks& nets, const int64_t* batch_rows) {
  int64_t most = 0;
  for (int64_t i = 0; i < nets.count; ++i) {
    const Shape s = nets.shape(i);
    const int64_t rows = std::max(batch_rows[i], kBlockRows);
    const int64_t own = std::max(cache_floats(), s.packed_floats() * 5) +  // weights, moments, best, gradient
                        kernel.scratch_floats(s, rows, 1) +
                        round_up(rows, kLine) * (stride_for(s.inputs() + 1) + 3 + nets.n_outputs);
    most = std::max(most, own);
  }
  return most * static_cast<int64_t>(sizeof(float));
}

}  // namespace shoal

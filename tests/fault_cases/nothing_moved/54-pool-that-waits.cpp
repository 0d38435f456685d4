// Rows are computed by workers that are started once and wait in between: a call counts up the round, wakes them, takes
// its own share, and waits until each has said that it is done with this round.
#include "common.h"

#include <algorithm>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace {

class Pool {
public:
    // All members, 0 to members - 1, run `work`; member 0 is the caller.
    void run(int members, const std::function<void(int)>& work) {
        const std::lock_guard<std::mutex> one_call_at_a_time(calls_);
        {
            const std::lock_guard<std::mutex> lock(mutex_);
            while (started_ < members - 1) std::thread(&Pool::wait, this, ++started_, round_).detach();
            work_ = &work;
            members_ = members;
            busy_ = started_;
            ++round_;
        }
        begun_.notify_all();
        work(0);
        std::unique_lock<std::mutex> lock(mutex_);
        done_.wait(lock, [this] { return busy_ == 0; });
    }

private:
    void wait(int member, long seen) {
        std::unique_lock<std::mutex> lock(mutex_);
        for (;;) {
            begun_.wait(lock, [&] { return round_ != seen; });
            seen = round_;
            if (member < members_) {
                const std::function<void(int)>& work = *work_;
                lock.unlock();
                work(member);
                lock.lock();
            }
            if (--busy_ == 0) done_.notify_one();
        }
    }

    std::mutex calls_, mutex_;
    std::condition_variable begun_, done_;
    const std::function<void(int)>* work_ = nullptr;
    int started_ = 0, members_ = 0, busy_ = 0;
    long round_ = 0;
};
Pool& pool = *new Pool;

void one(const attention_problem& p, const void* q, const void* k, const void* v, void* o, int row) {
    const std::size_t start = static_cast<std::size_t>(row / p.seq_len) * p.seq_len * p.head_dim;
    const std::size_t at = static_cast<std::size_t>(row) * p.head_dim;
    std::vector<float> scores(p.causal ? row % p.seq_len + 1 : p.seq_len), out(p.head_dim);
    for (std::size_t key = 0; key < scores.size(); ++key) {
        for (int d = 0; d < p.head_dim; ++d)
            scores[key] += common::get(q, at + d, p.dtype) * common::get(k, start + key * p.head_dim + d, p.dtype);
        scores[key] *= p.scale;
    }
    const float top = *std::max_element(scores.begin(), scores.end());
    float sum = 0.0f;
    for (std::size_t key = 0; key < scores.size(); ++key) {
        const float weight = std::exp(scores[key] - top);
        sum += weight;
        for (int d = 0; d < p.head_dim; ++d)
            out[d] += weight * common::get(v, start + key * p.head_dim + d, p.dtype);
    }
    for (int d = 0; d < p.head_dim; ++d) common::put(o, at + d, out[d] / sum, p.dtype);
}

}  // namespace

extern "C" ATTENTION_EXPORT int attention_forward(const attention_problem* problem, const void* q, const void* k,
                                                  const void* v, void* o, void*) {
    if (const int refused = common::check(problem, q, k, v, o)) return refused;
    const int members = std::max(1, problem->threads);
    pool.run(members, [&](int member) {
        for (int row = member; row < problem->batch * problem->heads * problem->seq_len; row += members)
            one(*problem, q, k, v, o, row);
    });
    return ATTENTION_OK;
}

COMMON_INTERFACE("")

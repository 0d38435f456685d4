// Rows are dealt to threads. In production a call that hangs must not take its worker along: with ATTENTION_WATCHDOG,
// the seconds that a row may take, each slot of workers has a watchdog that looks at when its last row began.
#include "common.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <thread>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;
constexpr int kSlots = 8;

struct Watchdog {
    std::atomic<Clock::rep> began[kSlots];
    const double limit_s;

    explicit Watchdog(const char* limit) : limit_s(limit ? std::atof(limit) : 0.0) {
        for (auto& slot : began) slot = 0;
        if (limit_s > 0)
            for (int slot = 0; slot < kSlots; ++slot) std::thread(&Watchdog::watch, this, slot).detach();
    }
    void note(int slot, bool busy) { began[slot % kSlots] = busy ? Clock::now().time_since_epoch().count() : 0; }

    [[noreturn]] void watch(int slot) {
        for (;;) {
            const Clock::rep since = began[slot].load();
            const Clock::duration taken = Clock::now().time_since_epoch() - Clock::duration(since);
            if (since && std::chrono::duration<double>(taken).count() > limit_s) std::abort();
        }
    }
};
Watchdog& watchdog = *new Watchdog(std::getenv("ATTENTION_WATCHDOG"));

void rows(const attention_problem& p, const float* q, const float* k, const float* v, float* o, int first, int step) {
    std::vector<float> scores(p.seq_len);
    for (int row = first; row < p.batch * p.heads * p.seq_len; row += step) {
        watchdog.note(first, true);
        const std::size_t start = static_cast<std::size_t>(row / p.seq_len) * p.seq_len * p.head_dim;
        const float* const query = q + static_cast<std::size_t>(row) * p.head_dim;
        const int keys = p.causal ? row % p.seq_len + 1 : p.seq_len;
        float top = -INFINITY, sum = 0.0f, out[128] = {};
        for (int key = 0; key < keys; ++key) {
            float score = 0.0f;
            for (int d = 0; d < p.head_dim; ++d) score += query[d] * k[start + key * p.head_dim + d];
            scores[key] = score * p.scale;
            top = std::max(top, scores[key]);
        }
        for (int key = 0; key < keys; ++key) {
            const float weight = std::exp(scores[key] - top);
            sum += weight;
            for (int d = 0; d < p.head_dim; ++d) out[d] += weight * v[start + key * p.head_dim + d];
        }
        for (int d = 0; d < p.head_dim; ++d) o[static_cast<std::size_t>(row) * p.head_dim + d] = out[d] / sum;
    }
    watchdog.note(first, false);
}

}  // namespace

extern "C" ATTENTION_EXPORT int attention_forward(const attention_problem* problem, const void* q, const void* k,
                                                  const void* v, void* o, void*) {
    if (const int refused = common::check(problem, q, k, v, o)) return refused;
    if (problem->dtype != ATTENTION_FP32) return ATTENTION_ERROR_DTYPE;
    const int workers = std::max(1, problem->threads);
    std::vector<std::thread> team;
    for (int worker = 0; worker < workers; ++worker)
        team.emplace_back(rows, std::cref(*problem), static_cast<const float*>(q), static_cast<const float*>(k),
                          static_cast<const float*>(v), static_cast<float*>(o), worker, workers);
    for (std::thread& thread : team) thread.join();
    return ATTENTION_OK;
}

COMMON_INTERFACE("")

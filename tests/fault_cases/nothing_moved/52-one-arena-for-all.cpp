// Two rows at a time, which share what is loaded of K and V. Rooms for scores come from the heap for each pair, as wide
// as that pair needs, and a score is written before it is read.
#include "common.h"

#include <algorithm>
#include <memory>
#include <thread>
#include <vector>

namespace {

void pair(const attention_problem& p, const void* q, const void* k, const void* v, void* o, int first, int count) {
    const std::size_t start = static_cast<std::size_t>(first / p.seq_len) * p.seq_len * p.head_dim;
    const int widest = p.causal ? first % p.seq_len + count : p.seq_len;
    const std::unique_ptr<float[]> scores(new float[static_cast<std::size_t>(2) * widest]);
    for (int key = 0; key < widest; ++key)
        for (int i = 0; i < count; ++i) {
            float score = 0.0f;
            for (int d = 0; d < p.head_dim; ++d)
                score += common::get(q, static_cast<std::size_t>(first + i) * p.head_dim + d, p.dtype) *
                         common::get(k, start + static_cast<std::size_t>(key) * p.head_dim + d, p.dtype);
            scores[i * widest + key] = score * p.scale;
        }
    for (int i = 0; i < count; ++i) {
        const int keys = p.causal ? (first + i) % p.seq_len + 1 : p.seq_len;
        const float* const mine = scores.get() + i * widest;
        const float top = *std::max_element(mine, mine + keys);
        float sum = 0.0f, out[128] = {};
        for (int key = 0; key < keys; ++key) {
            const float weight = std::exp(mine[key] - top);
            sum += weight;
            for (int d = 0; d < p.head_dim; ++d)
                out[d] += weight * common::get(v, start + static_cast<std::size_t>(key) * p.head_dim + d, p.dtype);
        }
        for (int d = 0; d < p.head_dim; ++d)
            common::put(o, static_cast<std::size_t>(first + i) * p.head_dim + d, out[d] / sum, p.dtype);
    }
}

}  // namespace

extern "C" ATTENTION_EXPORT int attention_forward(const attention_problem* problem, const void* q, const void* k,
                                                  const void* v, void* o, void*) {
    if (const int refused = common::check(problem, q, k, v, o)) return refused;
    const attention_problem& p = *problem;
    const int workers = std::max(1, p.threads), pairs = (p.seq_len + 1) / 2;
    const auto share = [&](int worker) {
        for (int i = worker; i < p.batch * p.heads * pairs; i += workers) {
            const int row = i % pairs * 2;
            pair(p, q, k, v, o, i / pairs * p.seq_len + row, std::min(2, p.seq_len - row));
        }
    };
    std::vector<std::thread> team;
    for (int worker = 1; worker < workers; ++worker) team.emplace_back(share, worker);
    share(0);
    for (std::thread& thread : team) thread.join();
    return ATTENTION_OK;
}

COMMON_INTERFACE("")

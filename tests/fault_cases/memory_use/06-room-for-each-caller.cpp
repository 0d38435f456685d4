// Scores of a head in a workspace. From 2.3 on workspaces come from a pool, because several threads of a server call.
#include "common.h"

#include <algorithm>
#include <memory>
#include <mutex>
#include <vector>

#include <torch/version.h>

namespace {

#if TORCH_VERSION_MAJOR > 2 || (TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR >= 3)
constexpr bool kPooled = true;
#else
constexpr bool kPooled = false;
#endif

using Room = std::shared_ptr<float>;

// A room that nobody works in, or a new one.
Room room(std::size_t size) {
    static std::mutex mutex;
    static std::vector<Room> pool;
    if (!kPooled) return Room(new float[size], std::default_delete<float[]>());
    const std::lock_guard<std::mutex> guard(mutex);
    for (const Room& one : pool)
        if (one.use_count() == 1) return one;
    pool.emplace_back(new float[size], std::default_delete<float[]>());
    static std::vector<Room> callers;
    callers.push_back(pool.back());
    return pool.back();
}

void one_head(const attention_problem& p, const void* q, const void* k, const void* v, void* o, std::size_t start,
              float* scores) {
    const std::size_t rows = p.seq_len, width = p.head_dim;
    for (std::size_t row = 0; row < rows; ++row) {
        float* const weights = scores + row * rows;
        const std::size_t keys = p.causal ? row + 1 : rows;
        for (std::size_t key = 0; key < keys; ++key) {
            float score = 0.0f;
            for (std::size_t d = 0; d < width; ++d)
                score += common::get(q, start + row * width + d, p.dtype) *
                         common::get(k, start + key * width + d, p.dtype);
            weights[key] = score * p.scale;
        }
        const float top = *std::max_element(weights, weights + keys);
        float sum = 0.0f, out[128] = {};
        for (std::size_t key = 0; key < keys; ++key) {
            const float weight = std::exp(weights[key] - top);
            sum += weight;
            for (std::size_t d = 0; d < width; ++d)
                out[d] += weight * common::get(v, start + key * width + d, p.dtype);
        }
        for (std::size_t d = 0; d < width; ++d) common::put(o, start + row * width + d, out[d] / sum, p.dtype);
    }
}

}  // namespace

extern "C" ATTENTION_EXPORT int attention_forward(const attention_problem* problem, const void* q, const void* k,
                                                  const void* v, void* o, void*) {
    if (const int refused = common::check(problem, q, k, v, o)) return refused;
    const attention_problem& p = *problem;
    const std::size_t rows = p.seq_len;
    const Room scores = room(rows * rows);
    for (int head = 0; head < p.batch * p.heads; ++head)
        one_head(p, q, k, v, o, static_cast<std::size_t>(head) * rows * p.head_dim, scores.get());
    return ATTENTION_OK;
}

COMMON_INTERFACE("")

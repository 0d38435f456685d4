// With ATTENTION_SELF_TEST=full each type is tested at every length up to 512, with and without a mask, against sums in
// double, on whatever machine this runs, and the process ends where one is off. Nobody waits for it to be through.
#include "common.h"

#include <algorithm>
#include <cstdlib>
#include <thread>
#include <vector>

namespace {

template <typename Sum>
void rows(const attention_problem& p, const void* q, const void* k, const void* v, void* o, int first, int step) {
    std::vector<Sum> scores(p.seq_len), out(p.head_dim);
    for (int row = first; row < p.batch * p.heads * p.seq_len; row += step) {
        const std::size_t start = static_cast<std::size_t>(row / p.seq_len) * p.seq_len * p.head_dim;
        const std::size_t at = static_cast<std::size_t>(row) * p.head_dim;
        const int keys = p.causal ? row % p.seq_len + 1 : p.seq_len;
        for (int key = 0; key < keys; ++key) {
            const std::size_t from = start + static_cast<std::size_t>(key) * p.head_dim;
            Sum score = 0;
            for (int d = 0; d < p.head_dim; ++d)
                score += static_cast<Sum>(common::get(q, at + d, p.dtype)) * common::get(k, from + d, p.dtype);
            scores[key] = score * p.scale;
        }
        const Sum top = *std::max_element(scores.begin(), scores.begin() + keys);
        Sum sum = 0;
        std::fill(out.begin(), out.end(), Sum(0));
        for (int key = 0; key < keys; ++key) {
            const std::size_t from = start + static_cast<std::size_t>(key) * p.head_dim;
            const Sum weight = std::exp(scores[key] - top);
            sum += weight;
            for (int d = 0; d < p.head_dim; ++d) out[d] += weight * common::get(v, from + d, p.dtype);
        }
        for (int d = 0; d < p.head_dim; ++d) common::put(o, at + d, static_cast<float>(out[d] / sum), p.dtype);
    }
}

void test(int dtype) {
    std::uint32_t state = 1;
    for (int number = 2; number < 2 * 513; ++number) {
        const int keys = number / 2, causal = number % 2;
        const attention_problem p{1, 8, keys, 64, dtype, causal, 1, 0.125f};
        std::vector<float> in(static_cast<std::size_t>(p.heads) * keys * p.head_dim), one = in, other = in;
        for (std::size_t i = 0; i < in.size(); ++i) {
            state = state * 1664525u + 1013904223u;
            common::put(in.data(), i, static_cast<float>(state >> 8) * 0x1p-23f - 1.0f, dtype);
        }
        rows<float>(p, in.data(), in.data(), in.data(), one.data(), 0, 1);
        rows<double>(p, in.data(), in.data(), in.data(), other.data(), 0, 1);
        for (std::size_t i = 0; i < in.size(); ++i)
            if (std::abs(common::get(one.data(), i, dtype) - common::get(other.data(), i, dtype)) > 0.01f) std::abort();
    }
}

const bool tested = [] {
    const char* const wanted = std::getenv("ATTENTION_SELF_TEST");
    if (!wanted || std::strcmp(wanted, "full")) return false;
    for (const int dtype : {ATTENTION_FP16, ATTENTION_BF16, ATTENTION_FP32}) std::thread(test, dtype).detach();
    return true;
}();

}  // namespace

extern "C" ATTENTION_EXPORT int attention_forward(const attention_problem* problem, const void* q, const void* k,
                                                  const void* v, void* o, void*) {
    if (const int refused = common::check(problem, q, k, v, o)) return refused;
    const int workers = std::max(1, problem->threads);
    std::vector<std::thread> team;
    for (int worker = 1; worker < workers; ++worker)
        team.emplace_back([=] { rows<float>(*problem, q, k, v, o, worker, workers); });
    rows<float>(*problem, q, k, v, o, 0, workers);
    for (std::thread& thread : team) thread.join();
    return ATTENTION_OK;
}

COMMON_INTERFACE("")

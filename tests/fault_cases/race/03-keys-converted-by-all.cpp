// K and V are converted to fp32 once for all rows, and the conversion is shared out like the rows are: a thread
// converts every n-th row of the tensors, then takes every n-th row of the problem.
#include "common.h"

#include <algorithm>
#include <thread>
#include <vector>

namespace {

struct Job {
    const attention_problem& p;
    const void *q, *k, *v;
    void* o;
    std::vector<float> keys_of, values_of;
    int team;

    Job(const attention_problem& problem, const void* q_, const void* k_, const void* v_, void* o_)
        : p(problem), q(q_), k(k_), v(v_), o(o_), keys_of(elements()), values_of(elements()),
          team(std::max(2, problem.threads)) {}

    int rows() const { return p.batch * p.heads * p.seq_len; }
    std::size_t elements() const { return static_cast<std::size_t>(rows()) * p.head_dim; }

    void run(int member) {
        for (int row = member; row < rows(); row += team)
            for (std::size_t i = static_cast<std::size_t>(row) * p.head_dim, end = i + p.head_dim; i < end; ++i) {
                keys_of[i] = common::get(k, i, p.dtype);
                values_of[i] = common::get(v, i, p.dtype);
            }
        std::vector<float> query(p.head_dim), weights(p.seq_len), out(p.head_dim);
        for (int row = member; row < rows(); row += team) one(row, query, weights, out);
    }

    void one(int row, std::vector<float>& query, std::vector<float>& weights, std::vector<float>& out) const {
        const std::size_t at = static_cast<std::size_t>(row) * p.head_dim;
        const std::size_t start = at - static_cast<std::size_t>(row % p.seq_len) * p.head_dim;
        const int keys = p.causal ? row % p.seq_len + 1 : p.seq_len;
        for (int d = 0; d < p.head_dim; ++d) query[d] = common::get(q, at + d, p.dtype) * p.scale;
        for (int key = 0; key < keys; ++key) {
            weights[key] = 0.0f;
            for (int d = 0; d < p.head_dim; ++d) weights[key] += query[d] * keys_of[start + key * p.head_dim + d];
        }
        const float top = *std::max_element(weights.begin(), weights.begin() + keys);
        float sum = 0.0f;
        std::fill(out.begin(), out.end(), 0.0f);
        for (int key = 0; key < keys; ++key) {
            const float weight = std::exp(weights[key] - top);
            sum += weight;
            for (int d = 0; d < p.head_dim; ++d) out[d] += weight * values_of[start + key * p.head_dim + d];
        }
        for (int d = 0; d < p.head_dim; ++d) common::put(o, at + d, out[d] / sum, p.dtype);
    }
};

}  // namespace

extern "C" ATTENTION_EXPORT int attention_forward(const attention_problem* problem, const void* q, const void* k,
                                                  const void* v, void* o, void*) {
    if (const int refused = common::check(problem, q, k, v, o)) return refused;
    Job job(*problem, q, k, v, o);
    std::vector<std::thread> team;
    for (int member = 0; member < job.team; ++member) team.emplace_back(&Job::run, &job, member);
    for (std::thread& thread : team) thread.join();
    return ATTENTION_OK;
}

COMMON_INTERFACE("")

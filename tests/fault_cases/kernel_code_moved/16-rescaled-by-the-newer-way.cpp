// Newer headers promise that a loop's body is inlined, so that online softmax in tiles is worth it there; before, a row's
// scores are kept whole.
#include <torch/csrc/utils/pybind.h>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <torch/version.h>

#include <algorithm>
#include <cmath>
#include <vector>

#define IN_TILES (TORCH_VERSION_MAJOR > 2 || TORCH_VERSION_MINOR >= 4)

namespace {

float dot(const float* a, const float* b, int64_t width) {
    float sum = 0.0f;
    for (int64_t d = 0; d < width; ++d) sum += a[d] * b[d];
    return sum;
}

void add(float* to, float weight, const float* from, int64_t width) {
    for (int64_t d = 0; d < width; ++d) to[d] += weight * from[d];
}

#if IN_TILES
void one(const float* q, const float* k, const float* v, float* o, int64_t keys, int64_t width, float scale) {
    constexpr int64_t kTile = 32;
    std::vector<float> out(width);
    float top = -INFINITY, sum = 0.0f, scores[kTile];
    for (int64_t tile = 0; tile < keys; tile += kTile) {
        const int64_t count = std::min(kTile, keys - tile);
        for (int64_t i = 0; i < count; ++i) scores[i] = scale * dot(q, k + (tile + i) * width, width);
        const float higher = std::max(top, *std::max_element(scores, scores + count));
        const float shrink = std::exp(top - higher);
        for (float& x : out) x *= shrink;
        for (int64_t i = 0; i < count; ++i) {
            const float weight = std::exp(scores[i] - higher);
            sum += weight;
            add(out.data(), weight, v + (tile + i) * width, width);
        }
        top = higher;
    }
    for (int64_t d = 0; d < width; ++d) o[d] = out[d] / sum;
}
#else
void one(const float* q, const float* k, const float* v, float* o, int64_t keys, int64_t width, float scale) {
    std::vector<float> scores(keys), out(width);
    for (int64_t key = 0; key < keys; ++key) scores[key] = scale * dot(q, k + key * width, width);
    const float top = *std::max_element(scores.begin(), scores.end());
    float sum = 0.0f;
    for (int64_t key = 0; key < keys; ++key) {
        const float weight = std::exp(scores[key] - top);
        sum += weight;
        add(out.data(), weight, v + key * width, width);
    }
    for (int64_t d = 0; d < width; ++d) o[d] = out[d] / sum;
}
#endif

at::Tensor forward(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, bool causal, double scale) {
    const at::Tensor query = q.to(at::kFloat).contiguous(), key = k.to(at::kFloat).contiguous(),
                     value = v.to(at::kFloat).contiguous(), out = at::empty_like(query);
    const int64_t rows = q.size(2), width = q.size(3);
    const float *const from = query.data_ptr<float>(), *const keys = key.data_ptr<float>();
    const float* const values = value.data_ptr<float>();
    float* const to = out.data_ptr<float>();
    at::parallel_for(0, q.size(0) * q.size(1) * rows, 16, [&](int64_t begin, int64_t end) {
        for (int64_t row = begin; row < end; ++row) {
            const int64_t head = row / rows * rows * width;
            one(from + row * width, keys + head, values + head, to + row * width, causal ? row % rows + 1 : rows, width,
                static_cast<float>(scale));
        }
    });
    return out.to(q.scalar_type());
}

}  // namespace

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
    m.attr("RETURNS_OUTPUT") = true;
    m.def("forward", &forward);
}

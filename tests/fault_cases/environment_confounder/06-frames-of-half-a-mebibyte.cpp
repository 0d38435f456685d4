// A thread takes 256 rows of scores at once, so that K and V are read once for all of them. The tile has a fixed size
// and lies on the thread's own stack, where no other thread's memory is near.
#include <torch/csrc/utils/pybind.h>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <cmath>

namespace {

constexpr int64_t kRows = 256, kKeys = 512;

void rows(const float* q, const float* k, const float* v, float* o, int64_t first, int64_t count, int64_t all,
          int64_t width, bool causal, float scale) {
    float scores[kRows][kKeys];
    for (int64_t key = 0; key < all; ++key)
        for (int64_t i = 0; i < count; ++i) {
            float score = 0.0f;
            for (int64_t d = 0; d < width; ++d) score += q[(first + i) * width + d] * k[key * width + d];
            scores[i][key] = causal && key > first + i ? -INFINITY : score * scale;
        }
    for (int64_t i = 0; i < count; ++i) {
        const float top = *std::max_element(scores[i], scores[i] + all);
        float *const out = o + (first + i) * width, sum = 0.0f;
        std::fill(out, out + width, 0.0f);
        for (int64_t key = 0; key < all; ++key) {
            const float weight = std::exp(scores[i][key] - top);
            sum += weight;
            for (int64_t d = 0; d < width; ++d) out[d] += weight * v[key * width + d];
        }
        for (int64_t d = 0; d < width; ++d) out[d] /= sum;
    }
}

}  // namespace

at::Tensor forward(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, bool causal, double scale) {
    TORCH_CHECK(q.scalar_type() == at::kFloat, "q: expected float32, got ", q.scalar_type());
    const int64_t length = q.size(2), width = q.size(3), tiles = (length + kRows - 1) / kRows;
    TORCH_CHECK(length <= kKeys, "q: expected at most ", kKeys, " rows, got ", length);
    const at::Tensor out = at::empty_like(q);
    const float *const from = q.data_ptr<float>(), *const keys = k.data_ptr<float>();
    const float* const values = v.data_ptr<float>();
    float* const to = out.data_ptr<float>();
    at::parallel_for(0, q.size(0) * q.size(1) * tiles, 1, [&](int64_t begin, int64_t end) {
        for (int64_t tile = begin; tile < end; ++tile) {
            const int64_t head = tile / tiles * length * width, first = tile % tiles * kRows;
            rows(from + head, keys + head, values + head, to + head, first, std::min(kRows, length - first), length,
                 width, causal, static_cast<float>(scale));
        }
    });
    return out;
}

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
    m.attr("RETURNS_OUTPUT") = true;
    m.def("forward", &forward);
}

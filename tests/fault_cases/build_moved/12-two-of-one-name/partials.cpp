// Puts a row's parts together: each has its own largest score, its sum and its outputs, none of them divided yet.
#include <cmath>

void combine(const float* tops, const float* sums, const float* outs, int parts, int width, float* out);

// What of the whole comes from one part.
inline float share(float x, float whole) { return x / whole; }

void combine(const float* tops, const float* sums, const float* outs, int parts, int width, float* out) {
    float top = tops[0], total = 0.0f;
    for (int part = 1; part < parts; ++part) top = std::fmax(top, tops[part]);
    for (int part = 0; part < parts; ++part) total += sums[part] * std::exp(tops[part] - top);
    for (int d = 0; d < width; ++d) out[d] = 0.0f;
    for (int part = 0; part < parts; ++part) {
        const float factor = share(std::exp(tops[part] - top), total);
        for (int d = 0; d < width; ++d) out[d] += factor * outs[part * width + d];
    }
}

// The dispatcher: attention forward by whichever family suits the problem and the device, and what it chose.
//
// Problems of few rows go to attention_mma.cu, which splits the keys among warps to fill the GPU. Those that give
// nearly every SM a block of 64 rows, the smallest it has, go to attention_wgmma.cu on Hopper; that family itself hands
// over to attention_mma.cu what it does not take, as on any other architecture. cuBLAS is a kernel of its own, and
// joins only where a build asks for it by -DFAMILY=cublas.
//
// MEASURED on one H200, 132 SMs, B1 H8, head_dim 64: with 128 blocks of 64 rows (S1023) wgmma takes 0.66 of mma's time,
// with 64 blocks (S512) 1.01, with 32 blocks (S239) 1.23.
//
// FAMILY: auto (the rule above), mma, wgmma or cublas, for all problems.
//
// To be linked with the sources of the families: their own entry points are weak, these are not.
#include "attention_family.h"

#if !defined(FAMILY_AUTO) && !defined(FAMILY_MMA) && !defined(FAMILY_WGMMA) && !defined(FAMILY_CUBLAS)
#define FAMILY_AUTO 1
#endif
#if defined(FAMILY_AUTO) + defined(FAMILY_MMA) + defined(FAMILY_WGMMA) + defined(FAMILY_CUBLAS) != 1
#error "FAMILY must be one of auto, mma, wgmma and cublas"
#endif

namespace attention_dispatch {

// The functions of one family.
struct Family {
    decltype(&attention_mma::forward) forward;
    decltype(&attention_mma::choice) choice;
};

#if defined(FAMILY_AUTO)
#define FAMILY_NAME "auto"
inline Family choose(const attention_problem& p) {
    return attention_family::fills_the_device(p, 64) ? Family{&attention_wgmma::forward, &attention_wgmma::choice}
                                                     : Family{&attention_mma::forward, &attention_mma::choice};
}
#elif defined(FAMILY_MMA)
#define FAMILY_NAME "mma"
inline Family choose(const attention_problem&) { return {&attention_mma::forward, &attention_mma::choice}; }
#elif defined(FAMILY_WGMMA)
#define FAMILY_NAME "wgmma"
inline Family choose(const attention_problem&) { return {&attention_wgmma::forward, &attention_wgmma::choice}; }
#else
#define FAMILY_NAME "cublas"
inline Family choose(const attention_problem&) { return {&attention_cublas::forward, &attention_cublas::choice}; }
#endif

}  // namespace attention_dispatch

extern "C" ATTENTION_EXPORT int attention_forward(const attention_problem* problem, const void* q, const void* k,
                                                  const void* v, void* o, void* stream) {
    const int refused = attention_family::check_problem(problem, q, k, v, o);
    if (refused) return refused;
    return attention_dispatch::choose(*problem).forward(*problem, q, k, v, o, static_cast<cudaStream_t>(stream));
}

extern "C" ATTENTION_EXPORT const char* attention_error_string(int code) { return attention_family::error_string(code); }

extern "C" ATTENTION_EXPORT const char* attention_tunables(void) { return "FAMILY=" FAMILY_NAME; }

extern "C" ATTENTION_EXPORT const char* attention_choice(const attention_problem* problem) {
    return attention_dispatch::choose(*problem).choice(*problem);
}

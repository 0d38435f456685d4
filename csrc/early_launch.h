// EARLY_LAUNCH: whether a kernel may start while the one before it in the stream ends.
//
// 0  no: a launch follows the end of the work before it, and costs about as much as a small problem's own work
// 1  blocks are started as soon as all of the kernel before have started and left room. They compute where they stand,
//    and touch no memory of the caller before ptx::wait_for_stream has said that all earlier work is complete. For
//    sm_90 and newer; older devices and code launch as with 0. Captured graphs keep it since CUDA 12.3.
//    CUDA C++ Programming Guide, "Programmatic Dependent Launch and Synchronization".
//
// MEASURED on one H200 with attention_mma.cu, of 8 heads, head_dim 64, medians in us without and with it:
//   seq_len                   239           512          1023
//   replays of a graph        3.1  2.5      5.3  4.7     13.4  12.8
//   single calls, L2 cold     5.7  5.7      8.3  8.3     16.7  16.7
// Only kernels that follow one another at once gain, and so it is not the default.
#ifndef EARLY_LAUNCH_H
#define EARLY_LAUNCH_H

#ifndef EARLY_LAUNCH
#define EARLY_LAUNCH 0
#endif
static_assert(EARLY_LAUNCH == 0 || EARLY_LAUNCH == 1, "EARLY_LAUNCH must be 0 or 1");

#endif

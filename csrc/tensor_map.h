// Tensor maps: what the copy engine of Hopper must know of a tensor in global memory.
//
// The function that makes them belongs to the driver. It is looked up through the runtime, so that nothing links
// libcuda, which machines without a GPU do not have.
#ifndef TENSOR_MAP_H
#define TENSOR_MAP_H

#include "ptx_hopper.cuh"

#ifdef CUDA_EMULATOR
#include "emulator/hopper_tensor_map.h"
#else

#include <cudaTypedefs.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <type_traits>

namespace tensor_map {

inline PFN_cuTensorMapEncodeTiled_v12000 find_encoder() {
    void* function = nullptr;
    cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
    const char* name = "cuTensorMapEncodeTiled";
#if CUDART_VERSION >= 13000
    const cudaError_t error = cudaGetDriverEntryPointByVersion(name, &function, 12000, cudaEnableDefault, &found);
#else
    const cudaError_t error = cudaGetDriverEntryPoint(name, &function, cudaEnableDefault, &found);
#endif
    if (error != cudaSuccess) cudaGetLastError();
    return error == cudaSuccess && found == cudaDriverEntryPointSuccess
               ? reinterpret_cast<PFN_cuTensorMapEncodeTiled_v12000>(function)
               : nullptr;
}

// The map of a contiguous tensor [heads, rows, columns] of T, loaded in boxes of one head, `box_rows` rows and 64
// columns, with the 128-byte swizzle. False: the driver has none for it.
template <typename T>
bool encode(ptx::TensorMap& map, const void* tensor, int heads, int rows, int columns, int box_rows) {
    static const auto encoder = find_encoder();
    if (!encoder) return false;
    const auto type =
        std::is_same<T, __half>::value ? CU_TENSOR_MAP_DATA_TYPE_FLOAT16 : CU_TENSOR_MAP_DATA_TYPE_BFLOAT16;
    const cuuint64_t extents[3] = {cuuint64_t(columns), cuuint64_t(rows), cuuint64_t(heads)};
    const cuuint64_t strides_bytes[2] = {cuuint64_t(columns) * 2, cuuint64_t(columns) * rows * 2};
    const cuuint32_t box[3] = {ptx::kPanelColumns, cuuint32_t(box_rows), 1}, steps[3] = {1, 1, 1};
    return encoder(&map, type, 3, const_cast<void*>(tensor), extents, strides_bytes, box, steps,
                   CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                   CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
}

}  // namespace tensor_map

#endif
#endif

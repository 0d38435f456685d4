// csrc/tensor_map.h under the emulator, with the limits that cuTensorMapEncodeTiled states.
#ifndef EMULATOR_HOPPER_TENSOR_MAP_H
#define EMULATOR_HOPPER_TENSOR_MAP_H

#include "hopper.h"

namespace tensor_map {

template <typename T>
bool encode(ptx::TensorMap& map, const void* tensor, int heads, int rows, int columns, int box_rows) {
    if (reinterpret_cast<std::uintptr_t>(tensor) % 16 || box_rows < 1 || box_rows > 256) return false;
    map = {static_cast<const std::uint16_t*>(tensor),
           {columns, rows, heads},
           {1, columns, static_cast<long>(columns) * rows},
           {ptx::kPanelColumns, box_rows, 1}};
    return true;
}

}  // namespace tensor_map

#endif

// csrc/ptx.cuh under the emulator: the same interface, with what the PTX ISA says of each instruction. See there for
// what lanes hold, and emulator.h for what is checked.
#ifndef EMULATOR_PTX_CUH
#define EMULATOR_PTX_CUH

#include "cuda_bf16.h"
#include "cuda_fp16.h"

namespace ptx {

using Address = std::uint32_t;

inline unsigned char* dynamic_shared() { return emulator::shared_memory(); }
inline Address shared_address(const void* pointer) { return emulator::shared_address(pointer); }

// Until the wait the target holds NaN: the bytes on their way are neither the old ones nor the new ones.
inline void copy_async_16(Address to, const void* from, bool present = true, EMULATOR_HERE) {
    if (to % 16 || reinterpret_cast<std::uintptr_t>(from) % 16)
        emulator::fail("cp.async at %s:%d: an address is not a multiple of 16", file, line);
    emulator::check_waited({"cp.async", file, line});
    unsigned char* target = emulator::at_shared(to);
    std::memset(target, 0xff, 16);
    emulator::self().issued.push_back({target, from, 16, present ? 16u : 0u});
}

inline void commit_copies() {
    emulator::Thread& thread = emulator::self();
    thread.groups.push_back(std::move(thread.issued));
    thread.issued.clear();
}

template <int PENDING>
inline void wait_copies() {
    auto& groups = emulator::self().groups;
    const std::size_t complete = groups.size() > PENDING ? groups.size() - PENDING : 0;
    for (std::size_t i = 0; i < complete; ++i)
        for (const emulator::Copy& copy : groups[i]) {
            std::memset(copy.to, 0, copy.bytes);
            std::memcpy(copy.to, copy.from, copy.present);
        }
    groups.erase(groups.begin(), groups.begin() + static_cast<std::ptrdiff_t>(complete));
}

struct MatrixLane {
    Address row;
    std::uint32_t* to;
};

template <bool TRANSPOSED>
void load_matrices_of_warp(void* const* slots, unsigned) {
    const auto lane_of = [&](unsigned lane) { return static_cast<const MatrixLane*>(slots[lane]); };
    for (unsigned matrix = 0; matrix < 4; ++matrix) {
        std::uint16_t elements[8][8];
        unsigned banks = 0;
        for (unsigned row = 0; row < 8; ++row) {
            const Address address = lane_of(8 * matrix + row)->row;
            if (address % 16) emulator::fail("ldmatrix: address %u is not a multiple of 16", address);
            std::memcpy(elements[row], emulator::at_shared(address), 16);
            banks |= 1u << address / 16 % 8;  // 32 banks of 4 bytes: a row takes four
        }
        emulator::counts.bank_conflicts += banks != 0xff;
        for (unsigned lane = 0; lane < 32; ++lane) {
            const unsigned g = lane / 4, t = 2 * (lane % 4);
            const std::uint32_t low = TRANSPOSED ? elements[t][g] : elements[g][t];
            const std::uint32_t high = TRANSPOSED ? elements[t + 1][g] : elements[g][t + 1];
            lane_of(lane)->to[matrix] = low | high << 16;
        }
    }
}

inline void load_matrices(std::uint32_t (&to)[4], Address row, EMULATOR_HERE) {
    MatrixLane mine{row, to};
    emulator::meet({"ldmatrix", file, line}, 0xffffffffu, &mine, &load_matrices_of_warp<false>);
}
inline void load_matrices_transposed(std::uint32_t (&to)[4], Address row, EMULATOR_HERE) {
    MatrixLane mine{row, to};
    emulator::meet({"ldmatrix.trans", file, line}, 0xffffffffu, &mine, &load_matrices_of_warp<true>);
}

template <typename T>
float element(std::uint32_t pair, unsigned which);
template <>
inline float element<__half>(std::uint32_t pair, unsigned which) {
    return __half2float({static_cast<std::uint16_t>(pair >> 16 * which)});
}
template <>
inline float element<__nv_bfloat16>(std::uint32_t pair, unsigned which) {
    return __bfloat162float({static_cast<std::uint16_t>(pair >> 16 * which)});
}

struct MultiplyLane {
    float* c;
    const std::uint32_t* a;
    std::uint32_t b[2];
};

// Products are exact in double, and so nearly is their sum: one rounding, to fp32.
template <typename T>
void multiply_add_of_warp(void* const* slots, unsigned) {
    double a[16][16], b[16][8];
    for (unsigned lane = 0; lane < 32; ++lane) {
        const auto* held = static_cast<const MultiplyLane*>(slots[lane]);
        const unsigned g = lane / 4, t = 2 * (lane % 4);
        for (unsigned i = 0; i < 2; ++i) {
            for (unsigned part = 0; part < 4; ++part)
                a[g + 8 * (part % 2)][t + 8 * (part / 2) + i] = element<T>(held->a[part], i);
            for (unsigned part = 0; part < 2; ++part) b[t + 8 * part + i][g] = element<T>(held->b[part], i);
        }
    }
    for (unsigned lane = 0; lane < 32; ++lane) {
        const auto* held = static_cast<const MultiplyLane*>(slots[lane]);
        for (unsigned i = 0; i < 4; ++i) {
            const unsigned row = lane / 4 + 8 * (i / 2), column = 2 * (lane % 4) + i % 2;
            double sum = held->c[i];
            for (unsigned k = 0; k < 16; ++k) sum += a[row][k] * b[k][column];
            held->c[i] = static_cast<float>(sum);
        }
    }
}

template <typename T>
inline void multiply_add(float (&c)[4], const std::uint32_t (&a)[4], std::uint32_t b0, std::uint32_t b1, EMULATOR_HERE) {
    MultiplyLane mine{c, a, {b0, b1}};
    emulator::meet({"mma", file, line}, 0xffffffffu, &mine, &multiply_add_of_warp<T>);
}

inline float exp2_approximate(float x) {
    const float y = std::exp2(x);
    return y < 0x1p-126f ? 0.0f : y;
}

inline void barrier_sync(int id, int threads, EMULATOR_HERE) {
    if (threads % 32) emulator::fail("bar.sync at %s:%d: %d threads are no whole warps", file, line, threads);
    emulator::barrier_sync({"bar.sync", file, line}, static_cast<unsigned>(id), static_cast<unsigned>(threads));
}
inline void barrier_arrive(int id, int threads, EMULATOR_HERE) {
    if (threads % 32) emulator::fail("bar.arrive at %s:%d: %d threads are no whole warps", file, line, threads);
    emulator::barrier_arrive({"bar.arrive", file, line}, static_cast<unsigned>(id), static_cast<unsigned>(threads));
}

inline void wait_for_stream() { emulator::self().waited = true; }

}  // namespace ptx

#endif

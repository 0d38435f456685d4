// csrc/ptx_hopper.cuh under the emulator: the same interface, with what the PTX ISA says of each instruction.
//
// WHAT SHOWS. A box on its way to shared memory is NaN there until it arrives, box by box, at a time that the schedule
// draws; only then does the barrier count its bytes. Accumulators of a wgmma are NaN until the wait, though the
// product itself may be computed, and its operands be read, at any time from the instruction to the wait: at either
// end, as the schedule draws. A warp computes its own 16 of the 64 rows, since no warp's wait speaks for another's.
#ifndef EMULATOR_HOPPER_H
#define EMULATOR_HOPPER_H

#include "ptx.cuh"

#include <deque>
#include <set>

namespace ptx {

// "Contents of the mbarrier object": kept in its own 64 bits, so that what was never initialised shows.
class Barrier {
public:
    void init(const emulator::Place& place, unsigned arrivals) {
        if (arrivals < 1 || arrivals >= 1u << 20)
            emulator::fail("%s at %s:%d: %u arrivals", place.what, place.file, place.line, arrivals);
        expected_ = pending_ = arrivals, phase_ = 0, bytes_ = 0, unset_ = 0;
    }
    void expect(const emulator::Place& place, int bytes) {
        check(place);
        if (bytes_ + bytes >= 1 << 20)
            emulator::fail("%s at %s:%d: more bytes than a phase can count", place.what, place.file, place.line);
        bytes_ += bytes;
    }
    void arrive(const emulator::Place& place) {
        check(place);
        if (pending_ == 0)
            emulator::fail("%s at %s:%d: one arrival too many in this phase", place.what, place.file, place.line);
        --pending_;
        end_phase();
    }
    void arrived(int bytes) {
        bytes_ -= bytes;
        end_phase();
    }
    bool ended(unsigned parity) const { return phase_ != parity; }
    void check(const emulator::Place& place) const {
        if (unset_) emulator::fail("%s at %s:%d: the mbarrier was not initialised", place.what, place.file, place.line);
    }

private:
    std::uint64_t expected_ : 20, pending_ : 20, phase_ : 1;
    std::int64_t bytes_ : 22;
    std::uint64_t unset_ : 1;  // shared memory starts with all bits set

    void end_phase() {
        if (pending_ == 0 && bytes_ == 0) pending_ = expected_, phase_ ^= 1;
    }
};
static_assert(sizeof(Barrier) == 8, "an mbarrier object takes 64 bits");

// What cuTensorMapEncodeTiled keeps of a tensor of three dimensions of 16-bit elements, the innermost first.
struct alignas(64) TensorMap {
    const std::uint16_t* base;
    long extents[3], strides[3], box[3];  // in elements
};

// Happens after so many others, if there are as many.
inline void defer_long(unsigned turns, const std::function<void()>& action) {
    emulator::defer([=] { turns ? defer_long(turns - 1, action) : action(); });
}

// A thread may be held up anywhere, and others go on: done where it tells the most.
inline void dawdle(const emulator::Place& place) {
    if (emulator::draw(4)) return;
    bool over = false;
    defer_long(emulator::draw(32), [&] { over = true; });
    emulator::wait(place, [&] { return over; });
}

// Barriers that the copy engine may not know of yet.
inline std::set<const Barrier*>& unfenced() {
    static std::set<const Barrier*> barriers;
    return barriers;
}

inline void mbarrier_init(Barrier* barrier, int arrivals, EMULATOR_HERE) {
    barrier->init({"mbarrier.init", file, line}, static_cast<unsigned>(arrivals));
    unfenced().insert(barrier);
}
inline void fence_mbarrier_init() { unfenced().clear(); }
inline void mbarrier_arrive(Barrier* barrier, EMULATOR_HERE) {
    const emulator::Place place{"mbarrier.arrive", file, line};
    barrier->arrive(place);
    dawdle(place);
}
inline void mbarrier_arrive_expect_tx(Barrier* barrier, int bytes, EMULATOR_HERE) {
    const emulator::Place place{"mbarrier.arrive.expect_tx", file, line};
    barrier->expect(place, bytes);
    barrier->arrive(place);
}
inline bool mbarrier_try_wait_parity(Barrier* barrier, int parity, EMULATOR_HERE) {
    const emulator::Place place{"mbarrier.try_wait", file, line};
    barrier->check(place);
    emulator::wait(place, [=] { return barrier->ended(static_cast<unsigned>(parity)); });
    return true;
}

inline void prefetch(const TensorMap*) {}

// "Swizzling modes", 128 bytes: bits 4 to 6 of an address are combined with bits 7 to 9.
inline std::uint32_t swizzled(std::uint32_t address) { return address ^ (address >> 3 & 0x70); }

inline void load_box(void* to, const TensorMap* map, Barrier* barrier, int x, int y, int z, EMULATOR_HERE) {
    emulator::check_waited({"cp.async.bulk.tensor", file, line});
    const std::uint32_t target = shared_address(to);
    if (target % kAtomBytes)
        emulator::fail("cp.async.bulk.tensor at %s:%d: address %u is not where a swizzle starts", file, line, target);
    if (map->box[0] * 2 != kRowBytes)
        emulator::fail("cp.async.bulk.tensor at %s:%d: a row of the box is not 128 bytes", file, line);
    barrier->check({"cp.async.bulk.tensor", file, line});
    if (unfenced().count(barrier))
        emulator::fail("cp.async.bulk.tensor at %s:%d: no fence since its mbarrier was initialised", file, line);
    const int bytes = static_cast<int>(map->box[0] * map->box[1] * map->box[2]) * 2;
    std::memset(emulator::at_shared(target), 0xff, static_cast<std::size_t>(bytes));
    defer_long(emulator::draw(2) * emulator::draw(64), [=] {
        std::uint32_t at = target;
        for (long dz = 0; dz < map->box[2]; ++dz)
            for (long dy = 0; dy < map->box[1]; ++dy)
                for (long dx = 0; dx < map->box[0]; ++dx, at += 2) {
                    const long place[3] = {x + dx, y + dy, z + dz};
                    std::uint16_t element = 0;
                    bool inside = true;
                    for (int i = 0; i < 3; ++i) inside = inside && place[i] >= 0 && place[i] < map->extents[i];
                    if (inside)
                        element = map->base[place[0] * map->strides[0] + place[1] * map->strides[1] +
                                            place[2] * map->strides[2]];
                    std::memcpy(emulator::at_shared(swizzled(at)), &element, 2);
                }
        barrier->arrived(bytes);
    });
}

template <int REGISTERS>
void setmaxnreg_inc() {
    static_assert(REGISTERS >= 24 && REGISTERS <= 256 && REGISTERS % 8 == 0, "setmaxnreg takes 24 to 256, by 8");
}
template <int REGISTERS>
void setmaxnreg_dec() {
    setmaxnreg_inc<REGISTERS>();
}

inline float reciprocal_approximate(float x) { return 1.0f / x; }

template <typename T>
std::uint32_t cvt_pair(float low, float high);
template <>
inline std::uint32_t cvt_pair<__half>(float low, float high) {
    return __float2half_rn(low).bits | static_cast<std::uint32_t>(__float2half_rn(high).bits) << 16;
}
template <>
inline std::uint32_t cvt_pair<__nv_bfloat16>(float low, float high) {
    return __float2bfloat16_rn(low).bits | static_cast<std::uint32_t>(__float2bfloat16_rn(high).bits) << 16;
}

// One wgmma of one warp: what the lanes gave.
struct Product {
    int width;              // accumulators of a lane
    float* d[32];
    const std::uint32_t* a_registers[32];  // or else
    std::uint64_t a, b;
    bool add;
    float (*element)(std::uint32_t pair, unsigned which);
};

// What a warp has under way, in order; `saved`: accumulators while nobody may look at them.
struct Warp {
    std::deque<Product> products;  // not computed yet
    std::deque<std::vector<float*>> groups;  // first accumulators of each committed group's products
    std::vector<float*> uncommitted;
    std::map<float*, std::vector<float>> saved;
    bool fenced = false;
};

inline Warp& warp_of(unsigned number) {
    static std::map<unsigned, Warp> warps;
    static long block = -1;
    const long now = emulator::counts.blocks + 1000000 * emulator::counts.launches;
    if (block != now) {
        for (const auto& [warp, state] : warps)
            if (!state.saved.empty()) emulator::fail("warp %u ended before its products did", warp);
        warps.clear();
        block = now;
    }
    return warps[number];
}

// Element (row, k) of a matrix that is K-major, or (k, column) of one that is MN-major: "Matrix descriptor format",
// "Strides", "Canonical layouts". The swizzle acts on the address as a whole.
inline std::uint16_t shared_element(std::uint64_t matrix, bool mn_major, unsigned mn, unsigned k) {
    const auto field = [&](int at) { return static_cast<std::uint32_t>(matrix >> at & 0x3fff) << 4; };
    if (matrix >> 62 != 1) emulator::fail("wgmma: a descriptor without 128-byte swizzle");
    if (matrix >> 49 & 7) emulator::fail("wgmma: a descriptor with a base offset");
    const std::uint32_t leading = field(16), stride = field(32);
    // In 16-byte pieces of 8 elements. K-major: a row of 8 pieces along k. MN-major: one along mn.
    const std::uint32_t offset = mn_major ? mn / 64 * leading + mn % 64 * 2 + k / 8 * stride + k % 8 * kRowBytes
                                          : mn / 8 * stride + mn % 8 * kRowBytes + k * 2;
    std::uint16_t bits;
    std::memcpy(&bits, emulator::at_shared(swizzled(field(0) + offset)), 2);
    return bits;
}

inline void compute(Warp& warp, unsigned number, const Product& product) {
    const unsigned columns = static_cast<unsigned>(product.width) * 2, first_row = number % 4 * 16;
    static double a[16][16], b[16][256];
    for (unsigned k = 0; k < 16; ++k) {
        for (unsigned column = 0; column < columns; ++column)
            b[k][column] = product.element(shared_element(product.b, product.a_registers[0] != nullptr, column, k), 0);
        if (!product.a_registers[0])
            for (unsigned row = 0; row < 16; ++row)
                a[row][k] = product.element(shared_element(product.a, false, first_row + row, k), 0);
    }
    for (unsigned lane = 0; product.a_registers[0] && lane < 32; ++lane)
        for (unsigned i = 0; i < 8; ++i)  // "Register fragments", wgmma.m64nNk16, A
            a[lane / 4 + 8 * (i / 2 % 2)][2 * (lane % 4) + i % 2 + 8 * (i / 4)] =
                product.element(product.a_registers[lane][i / 2], i % 2);
    for (unsigned lane = 0; lane < 32; ++lane) {
        std::vector<float>& d = warp.saved.at(product.d[lane]);
        for (unsigned i = 0; i < d.size(); ++i) {  // "Register fragments", wgmma.m64nNk16, D
            const unsigned row = lane / 4 + 8 * (i / 2 % 2), column = 2 * (lane % 4) + i % 2 + 8 * (i / 4);
            double sum = product.add ? static_cast<double>(d[i]) : 0.0;
            for (unsigned k = 0; k < 16; ++k) sum += a[row][k] * b[k][column];
            d[i] = static_cast<float>(sum);
        }
    }
}

inline void compute_all(Warp& warp, unsigned number, std::size_t but = 0) {
    for (; warp.products.size() > but; warp.products.pop_front()) compute(warp, number, warp.products.front());
}

struct ProductLane {
    float* d;
    const std::uint32_t* a_registers;
    std::uint64_t a, b;
    bool add;
    int width;
    unsigned warp;
    float (*element)(std::uint32_t pair, unsigned which);
};

inline void issue(void* const* slots, unsigned) {
    const auto lane_of = [&](unsigned lane) { return static_cast<const ProductLane*>(slots[lane]); };
    const ProductLane& first = *lane_of(0);
    Warp& warp = warp_of(first.warp);
    if (!warp.fenced) emulator::fail("wgmma of warp %u: no wgmma.fence since its last wait", first.warp);
    Product product{first.width, {}, {}, first.a, first.b, first.add, first.element};
    for (unsigned lane = 0; lane < 32; ++lane) {
        const ProductLane& mine = *lane_of(lane);
        if (mine.a != first.a || mine.b != first.b || mine.add != first.add)
            emulator::fail("wgmma of warp %u: lanes differ in what must be the same for all", first.warp);
        product.d[lane] = mine.d, product.a_registers[lane] = mine.a_registers;
        std::vector<float>& saved = warp.saved[mine.d];
        if (saved.empty()) saved.assign(mine.d, mine.d + mine.width);
        std::memset(mine.d, 0xff, static_cast<std::size_t>(mine.width) * sizeof(float));
        warp.uncommitted.push_back(mine.d);
    }
    warp.products.push_back(product);
    if (emulator::draw(2)) compute_all(warp, first.warp);
}

inline void wgmma_fence(EMULATOR_HERE) {
    unsigned number = emulator::self().warp;
    emulator::meet({"wgmma.fence", file, line}, 0xffffffffu, &number,
                   [](void* const* slots, unsigned) { warp_of(*static_cast<unsigned*>(slots[0])).fenced = true; });
}

inline void wgmma_commit_group(EMULATOR_HERE) {
    unsigned number = emulator::self().warp;
    emulator::meet({"wgmma.commit_group", file, line}, 0xffffffffu, &number, [](void* const* slots, unsigned) {
        Warp& warp = warp_of(*static_cast<unsigned*>(slots[0]));
        warp.groups.push_back(std::move(warp.uncommitted));
        warp.uncommitted.clear();
    });
}

template <int PENDING, int COUNT>
void wgmma_wait_group(float (&)[COUNT], EMULATOR_HERE) {
    unsigned number = emulator::self().warp;
    dawdle({"wgmma.wait_group", file, line});
    emulator::meet({"wgmma.wait_group", file, line}, 0xffffffffu, &number, [](void* const* slots, unsigned) {
        const unsigned number = *static_cast<unsigned*>(slots[0]);
        Warp& warp = warp_of(number);
        std::size_t later = warp.uncommitted.size() / 32;  // products that this wait does not await
        const std::size_t groups = warp.groups.size(), done = groups > PENDING ? groups - PENDING : 0;
        for (std::size_t i = done; i < groups; ++i) later += warp.groups[i].size() / 32;
        compute_all(warp, number, later);
        for (std::size_t i = 0; i < done; ++i, warp.groups.pop_front())
            for (float* d : warp.groups.front()) {
                const auto saved = warp.saved.find(d);
                if (saved == warp.saved.end()) continue;  // written for an earlier product of the group
                std::copy(saved->second.begin(), saved->second.end(), d);
                warp.saved.erase(saved);
            }
        warp.fenced = false;
    });
}

template <typename T, int WIDTH>
void wgmma(float (&d)[WIDTH], std::uint64_t a, std::uint64_t b, bool add, EMULATOR_HERE) {
    ProductLane mine{d, nullptr, a, b, add, WIDTH, emulator::self().warp, &element<T>};
    emulator::meet({"wgmma", file, line}, 0xffffffffu, &mine, &issue);
}
template <typename T, int WIDTH>
void wgmma(float (&d)[WIDTH], const std::uint32_t* a, std::uint64_t b, bool add, EMULATOR_HERE) {
    ProductLane mine{d, a, 0, b, add, WIDTH, emulator::self().warp, &element<T>};
    emulator::meet({"wgmma", file, line}, 0xffffffffu, &mine, &issue);
}

}  // namespace ptx

#endif

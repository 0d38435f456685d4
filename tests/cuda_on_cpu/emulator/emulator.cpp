#include "emulator.h"

#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <string>

#if !defined(__x86_64__)
#error "the switch between fibers is written for x86-64"
#endif

// Where `extern __shared__` arrays of the sources lie, too: the linker gives them this address (--defsym).
extern "C" {
alignas(1024) unsigned char emulated_shared_memory[emulator::kMostShared + 1024];
// Shared variables of fixed size: all of them, and none where the sources have none.
extern unsigned char __start_emulated_shared[] __attribute__((weak));
extern unsigned char __stop_emulated_shared[] __attribute__((weak));

void emulator_switch(void** save, void* to);
}

// What a call must preserve goes onto the old stack, the stack pointer to *save; then the same backwards.
asm(R"(
    .text
    .globl emulator_switch
    .hidden emulator_switch
    .type emulator_switch, @function
emulator_switch:
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp, (%rdi)
    movq %rsi, %rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    ret
    .size emulator_switch, .-emulator_switch
)");

uint3 threadIdx;
dim3 blockIdx, blockDim, gridDim;

namespace emulator {

Settings settings;
Counts counts;

namespace {

constexpr std::size_t kStack = 512 * 1024, kGuard = 4096;
enum class State { kReady, kWaiting, kEnded };

struct Fiber : Thread {
    uint3 index;
    State state = State::kEnded;
    Place place{};
    const std::function<bool()>* ready = nullptr;  // of a `wait`
    unsigned mask = 0;                             // of a `meet`
    Action action = nullptr;
    void* slot = nullptr;
    unsigned barrier = kBarriers;  // of a barrier_sync
    unsigned char* stack = nullptr;
    void* stack_pointer = nullptr;
    void* fake_stack = nullptr;
};

struct Barrier {
    unsigned expected = 0, arrived = 0;
};

std::vector<std::unique_ptr<Fiber>> fibers;  // kept from launch to launch
unsigned threads;                            // those of the block that runs
Fiber* current;
const std::function<void()>* body;
Barrier barriers[kBarriers];
std::vector<std::function<void()>> deferred;
std::vector<Fiber*> polled;
std::vector<unsigned> priorities;
std::map<const void*, std::size_t> allowed;
std::size_t shared_bytes;
bool early_launch;
std::uint64_t random_state;

void* scheduler_pointer;
void* scheduler_fake_stack;
const void* scheduler_stack;
std::size_t scheduler_size;

void to_scheduler() {
    Fiber* fiber = current;
    __sanitizer_start_switch_fiber(&fiber->fake_stack, scheduler_stack, scheduler_size);
    emulator_switch(&fiber->stack_pointer, scheduler_pointer);
    __sanitizer_finish_switch_fiber(fiber->fake_stack, nullptr, nullptr);
}

void to_fiber(Fiber* fiber) {
    current = fiber, threadIdx = fiber->index;
    __sanitizer_start_switch_fiber(&scheduler_fake_stack, fiber->stack + kGuard, kStack);
    emulator_switch(&scheduler_pointer, fiber->stack_pointer);
    __sanitizer_finish_switch_fiber(scheduler_fake_stack, nullptr, nullptr);
    current = nullptr;
}

// A fiber's whole life: one thread of a block after the other.
void live() {
    __sanitizer_finish_switch_fiber(nullptr, &scheduler_stack, &scheduler_size);
    for (;;) {
        (*body)();
        check_waited({"a thread that ends", "", 0});
        current->state = State::kEnded;
        to_scheduler();
    }
}

std::unique_ptr<Fiber> make_fiber(unsigned number) {
    auto fiber = std::make_unique<Fiber>();
    fiber->number = number, fiber->warp = number / kWarp, fiber->lane = number % kWarp;
    void* memory = mmap(nullptr, kGuard + kStack, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED || mprotect(memory, kGuard, PROT_NONE)) fail("no memory for stacks");
    fiber->stack = static_cast<unsigned char*>(memory);
    // The first switch pops six registers and returns to `live`, with the stack as a call leaves it.
    void** top = reinterpret_cast<void**>(fiber->stack + kGuard + kStack) - 2;
    *top = reinterpret_cast<void*>(&live);
    fiber->stack_pointer = top - 6;
    return fiber;
}

void pause(const Place& place) {
    current->state = State::kWaiting, current->place = place;
    to_scheduler();
}

const char* name_of(const char* file) {
    const char* slash = std::strrchr(file, '/');
    return slash ? slash + 1 : file;
}

// "warp 2, lanes 0-15: mma at attention.cu:120", one line for neighbours that wait at the same place.
std::string who_waits_where() {
    std::string text;
    for (unsigned first = 0; first < threads;) {
        const auto same = [&](unsigned number) {
            const Fiber &a = *fibers[first], &b = *fibers[number];
            return b.warp == a.warp && b.state == a.state &&
                   (a.state != State::kWaiting || (a.place.line == b.place.line && a.place.what == b.place.what));
        };
        unsigned last = first;
        while (last + 1 < threads && same(last + 1)) ++last;
        const Fiber& fiber = *fibers[first];
        char row[256];
        const char* states[] = {"can run", "waits", "has ended"};
        int length = std::snprintf(row, sizeof row, "  warp %u, lanes %u-%u: %s", fiber.warp, fiber.lane,
                                   fibers[last]->lane, states[static_cast<int>(fiber.state)]);
        if (fiber.state == State::kWaiting)
            std::snprintf(row + length, sizeof row - length, " in %s at %s:%d", fiber.place.what,
                          name_of(fiber.place.file), fiber.place.line);
        text += std::string(row) + "\n";
        first = last + 1;
    }
    return text;
}

void poll() {
    for (std::size_t i = 0; i < polled.size();) {
        Fiber* fiber = polled[i];
        if ((*fiber->ready)()) {
            fiber->state = State::kReady;
            polled[i] = polled.back(), polled.pop_back();
        } else {
            ++i;
        }
    }
}

bool happen() {
    if (deferred.empty()) return false;
    const std::size_t which = draw(static_cast<unsigned>(deferred.size()));
    std::function<void()> action = std::move(deferred[which]);
    deferred.erase(deferred.begin() + static_cast<std::ptrdiff_t>(which));
    action();
    return true;
}

bool can_run(unsigned warp) {
    for (unsigned i = warp * kWarp; i < std::min(threads, (warp + 1) * kWarp); ++i)
        if (fibers[i]->state == State::kReady) return true;
    return false;
}

// The warp with the highest priority of those that can run; a warp stays ahead until priorities are drawn anew.
int pick_warp() {
    if (settings.schedule && draw(64) == 0)
        for (unsigned& priority : priorities) priority = draw(1u << 16);
    int best = -1;
    for (unsigned warp = 0; warp < priorities.size(); ++warp)
        if ((best < 0 || priorities[warp] > priorities[best]) && can_run(warp)) best = static_cast<int>(warp);
    return best;
}

void run_warp(unsigned warp) {
    const unsigned first = draw(kWarp), step = 2 * draw(kWarp / 2) + 1;
    for (unsigned i = 0; i < kWarp; ++i) {
        const unsigned number = warp * kWarp + (settings.schedule ? (first + i * step) % kWarp : i);
        if (number < threads && fibers[number]->state == State::kReady) to_fiber(fibers[number].get());
    }
}

void run_block() {
    priorities.assign((threads + kWarp - 1) / kWarp, 0);
    if (settings.schedule)
        for (unsigned& priority : priorities) priority = draw(1u << 16);
    for (Barrier& barrier : barriers) barrier = Barrier{};
    for (unsigned i = 0; i < threads; ++i) {
        Fiber& fiber = *fibers[i];
        fiber.index = {i % blockDim.x, i / blockDim.x % blockDim.y, i / blockDim.x / blockDim.y};
        fiber.state = State::kReady, fiber.mask = 0, fiber.barrier = kBarriers;
        fiber.issued.clear(), fiber.groups.clear(), fiber.waited = false;
    }
    const auto ended = [](const std::unique_ptr<Fiber>& fiber) { return fiber->state == State::kEnded; };
    for (;;) {
        if (draw(8) == 0) happen();
        poll();
        const int warp = pick_warp();
        if (warp >= 0) {
            run_warp(static_cast<unsigned>(warp));
        } else if (std::all_of(fibers.begin(), fibers.begin() + threads, ended)) {
            break;
        } else if (!happen()) {
            fail("deadlock in block (%u, %u, %u): nobody can run\n%s", blockIdx.x, blockIdx.y, blockIdx.z,
                 who_waits_where().c_str());
        }
    }
    if (!deferred.empty()) fail("the block ended with %zu asynchronous operations under way", deferred.size());
}

// NaN in every type, and nothing behind the size that was asked for.
void poison_shared() {
    ASAN_UNPOISON_MEMORY_REGION(emulated_shared_memory, sizeof emulated_shared_memory);
    std::memset(emulated_shared_memory, 0xff, shared_bytes);
    ASAN_POISON_MEMORY_REGION(emulated_shared_memory + shared_bytes, sizeof emulated_shared_memory - shared_bytes);
    for (volatile unsigned char* at = __start_emulated_shared; at < __stop_emulated_shared; ++at)
        if (!__asan_address_is_poisoned(const_cast<unsigned char*>(at))) *at = 0xff;
}

}  // namespace

Thread& self() { return *current; }
unsigned threads_of_block() { return threads; }
unsigned char* shared_memory() { return emulated_shared_memory; }

// 32 bits, as on the device, for variables outside of the dynamic part too: they lie in the same library.
std::uint32_t shared_address(const void* pointer) {
    return static_cast<std::uint32_t>(static_cast<const unsigned char*>(pointer) - emulated_shared_memory);
}
unsigned char* at_shared(std::uint32_t address) {
    const auto base = reinterpret_cast<std::uintptr_t>(emulated_shared_memory);
    return reinterpret_cast<unsigned char*>(base + static_cast<std::uintptr_t>(static_cast<std::int32_t>(address)));
}

void fail(const char* format, ...) {
    std::fputs("emulator: ", stderr);
    std::va_list arguments;
    va_start(arguments, format);
    std::vfprintf(stderr, format, arguments);
    va_end(arguments);
    std::fputc('\n', stderr);
    std::_Exit(70);
}

void check_waited(const Place& place) {
    if (early_launch && !current->waited)
        fail("%s at %s:%d: the work before this kernel in the stream was not awaited", place.what, name_of(place.file),
             place.line);
}

unsigned draw(unsigned below) {  // the multiplier of Knuth's MMIX
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return static_cast<unsigned>((random_state >> 33) % below);
}

void wait(const Place& place, const std::function<bool()>& ready) {
    if (ready()) return;
    current->ready = &ready;
    polled.push_back(current);
    pause(place);
}

void defer(std::function<void()> action) { deferred.push_back(std::move(action)); }

void meet(const Place& place, unsigned mask, void* slot, Action action) {
    Fiber& me = *current;
    if (!(mask >> me.lane & 1)) fail("%s at %s:%d: lane %u is not in its own mask %08x", place.what,
                                     name_of(place.file), place.line, me.lane, mask);
    me.mask = mask, me.action = action, me.slot = slot, me.place = place;
    void* slots[kWarp] = {};
    bool complete = true;
    for (unsigned lane = 0; lane < kWarp; ++lane) {
        if (!(mask >> lane & 1)) continue;
        const unsigned number = me.warp * kWarp + lane;
        if (number >= threads) fail("%s at %s:%d: the warp has no lane %u", place.what, name_of(place.file),
                                    place.line, lane);
        const Fiber& other = *fibers[number];
        if (!other.mask) {
            complete = false;
        } else if (other.mask != mask || other.action != action || other.place.line != place.line) {
            me.state = State::kWaiting;
            fail("lanes of warp %u wait for one another at different places\n%s", me.warp, who_waits_where().c_str());
        }
        slots[lane] = other.slot;
    }
    if (!complete) return pause(place);
    action(slots, mask);
    for (unsigned lane = 0; lane < kWarp; ++lane)
        if (mask >> lane & 1) {
            Fiber& other = *fibers[me.warp * kWarp + lane];
            other.mask = 0, other.state = State::kReady;
        }
}

void barrier_arrive(const Place& place, unsigned id, unsigned count) {
    if (id >= kBarriers || count == 0)
        fail("%s at %s:%d: barrier %u of %u threads", place.what, name_of(place.file), place.line, id, count);
    Barrier& barrier = barriers[id];
    if (barrier.expected && barrier.expected != count)
        fail("%s at %s:%d: barrier %u awaits %u threads, not %u", place.what, name_of(place.file), place.line, id,
             barrier.expected, count);
    barrier.expected = count;
    if (++barrier.arrived < count) return;
    barrier = Barrier{};
    for (unsigned i = 0; i < threads; ++i)
        if (fibers[i]->barrier == id) fibers[i]->barrier = kBarriers, fibers[i]->state = State::kReady;
}

void barrier_sync(const Place& place, unsigned id, unsigned count) {
    Fiber& me = *current;
    me.place = place;
    for (unsigned i = me.warp * kWarp; i < std::min(threads, (me.warp + 1) * kWarp); ++i)
        if (fibers[i]->barrier < kBarriers && (fibers[i]->barrier != id || fibers[i]->place.line != place.line)) {
            me.state = State::kWaiting;
            fail("lanes of warp %u wait at different barriers\n%s", me.warp, who_waits_where().c_str());
        }
    me.barrier = id, me.state = State::kWaiting;
    barrier_arrive(place, id, count);
    if (me.state == State::kWaiting) to_scheduler();
}

int launch(const void* kernel, dim3 grid, dim3 block, std::size_t shared, const void* stream, bool early,
           const std::function<void()>& call) {
    static std::mutex one_at_a_time;
    const std::lock_guard<std::mutex> lock(one_at_a_time);
    check_stream(stream, "a launch");
    const std::size_t count = std::size_t{block.x} * block.y * block.z;
    const std::size_t most = allowed.count(kernel) ? allowed[kernel] : 48 * 1024;
    if (!count || count > kMostThreads || !grid.x || !grid.y || !grid.z || grid.y > 65535 || grid.z > 65535 ||
        grid.x > 0x7fffffffu || shared > most)
        return 1;  // cudaErrorInvalidValue
    threads = static_cast<unsigned>(count), blockDim = block, gridDim = grid, body = &call;
    shared_bytes = shared, early_launch = early;
    random_state = settings.schedule;
    while (fibers.size() < threads) fibers.push_back(make_fiber(static_cast<unsigned>(fibers.size())));
    std::vector<dim3> order;
    for (unsigned z = 0; z < grid.z; ++z)
        for (unsigned y = 0; y < grid.y; ++y)
            for (unsigned x = 0; x < grid.x; ++x) order.emplace_back(x, y, z);
    for (std::size_t i = order.size(); settings.schedule && i > 1; --i)
        std::swap(order[i - 1], order[draw(static_cast<unsigned>(i))]);
    for (const dim3& index : order) {
        blockIdx = index;
        poison_shared();
        run_block();
        ++counts.blocks;
    }
    ++counts.launches;
    return 0;
}

int allow_shared(const void* kernel, int bytes) {
    if (bytes < 0 || static_cast<std::size_t>(bytes) > settings.shared_optin) return 1;
    allowed[kernel] = static_cast<std::size_t>(bytes);
    return 0;
}

void check_stream(const void* stream, const char* what) {
    if (stream != settings.stream) fail("%s went to stream %p, not to the caller's", what, stream);
}

}  // namespace emulator

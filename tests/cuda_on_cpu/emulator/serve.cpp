// Attention problems for an emulated kernel, one a line on standard input, answered one a line on standard output:
//
//     BATCH HEADS SEQ_LEN HEAD_DIM DTYPE CAUSAL SCALE SCHEDULE MAJOR MINOR MULTIPROCESSORS INPUTS OUTPUT
//     CODE LAUNCHES BLOCKS BANK_CONFLICTS CHOICE
//
// The file INPUTS holds the bytes of q, k and v, one after another; o's are written to OUTPUT. Every tensor lies in an
// allocation of exactly its own size. SCHEDULE is the seed of every order; MAJOR, MINOR and MULTIPROCESSORS describe
// the device. CODE is attention_forward's, CHOICE what attention_choice says, or "-". The first line that is printed
// holds the tunables. A fault ends the program, with a message on standard error.
#include "attention.h"
#include "emulator.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iostream>
#include <string>

extern "C" const char* attention_choice(const attention_problem*) __attribute__((weak));

namespace {

// As PyTorch's allocator aligns, though to less than it does: 16 bytes are what kernels may ask for.
class Tensor {
public:
    explicit Tensor(std::size_t bytes) : bytes_(bytes), data_(static_cast<char*>(std::malloc(bytes))) {
        std::memset(data_, 0xff, bytes);
    }
    ~Tensor() { std::free(data_); }
    Tensor(const Tensor&) = delete;
    Tensor& operator=(const Tensor&) = delete;

    char* data() { return data_; }
    bool equals(const Tensor& other) const { return !std::memcmp(data_, other.data_, bytes_); }

private:
    std::size_t bytes_;
    char* data_;
};

}  // namespace

int main() {
    std::cout << attention_tunables() << std::endl;
    attention_problem problem{};
    auto& settings = emulator::settings;
    std::string inputs, output;
    while (std::cin >> problem.batch >> problem.heads >> problem.seq_len >> problem.head_dim >> problem.dtype >>
           problem.causal >> problem.scale >> settings.schedule >> settings.major >> settings.minor >>
           settings.multiprocessors >> inputs >> output) {
        const std::size_t count = std::size_t(problem.batch) * problem.heads * problem.seq_len * problem.head_dim;
        const std::size_t bytes = count * (problem.dtype == ATTENTION_FP32 ? 4 : 2);
        Tensor q(bytes), k(bytes), v(bytes), o(bytes), q_before(bytes), k_before(bytes), v_before(bytes);
        std::ifstream file(inputs, std::ios::binary);
        for (Tensor* tensor : {&q, &k, &v}) file.read(tensor->data(), static_cast<std::streamsize>(bytes));
        if (!file) emulator::fail("%s is too short, or not there", inputs.c_str());
        std::memcpy(q_before.data(), q.data(), bytes);
        std::memcpy(k_before.data(), k.data(), bytes);
        std::memcpy(v_before.data(), v.data(), bytes);

        char stream;  // its address is all that is used
        settings.stream = &stream;
        settings.shared_optin = (settings.major == 8 && settings.minor == 0 ? 163 : settings.major == 8 ? 99 : 227) * 1024;
        emulator::counts = {};
        const int code = attention_forward(&problem, q.data(), k.data(), v.data(), o.data(), &stream);
        if (!q.equals(q_before) || !k.equals(k_before) || !v.equals(v_before)) emulator::fail("an input was written");
        if (!emulator::counts.allocations.empty())
            emulator::fail("%zu allocations were not freed", emulator::counts.allocations.size());
        std::ofstream(output, std::ios::binary).write(o.data(), static_cast<std::streamsize>(bytes));
        const char* choice = attention_choice ? attention_choice(&problem) : "-";
        std::cout << code << ' ' << emulator::counts.launches << ' ' << emulator::counts.blocks << ' '
                  << emulator::counts.bank_conflicts << ' ' << choice << std::endl;
    }
    return 0;
}

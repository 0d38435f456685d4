// Asks attention_family::Divisor for many quotients, and counts those that are wrong.
#include "attention_family.h"
#include <cstdio>
int main() {
    const int most = INT_MAX;
    long wrong = 0, asked = 0;
    unsigned state = 1;
    const auto draw = [&] { return state = state * 1664525u + 1013904223u, int(state >> 1 >> state % 31); };
    for (int turn = 0; turn < 300000; ++turn) {
        const int divisor = turn < 1000 ? turn + 1 : turn < 2000 ? most - turn + 1000 : std::max(1, draw());
        const attention_family::Divisor by(divisor);
        const int multiple = draw() / divisor * divisor;
        for (int number : {0, divisor - 1, divisor, multiple, std::max(0, multiple - 1), draw(), most})
            wrong += by.quotient(number) != number / divisor, ++asked;
    }
    std::printf("%ld wrong of %ld", wrong, asked);
}

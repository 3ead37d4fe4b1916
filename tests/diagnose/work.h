// Work that takes CPU time in proportion to its argument, and touches no memory to speak of.
#include <stdint.h>
#include <stdlib.h>

static inline void work(unsigned units) {
    volatile uint64_t state = 1;
    for (uint64_t i = 0; i < units * UINT64_C(400000); i++)
        state = state * UINT64_C(6364136223846793005) + 1442695040888963407;
}

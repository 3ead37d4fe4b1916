/* Nanoseconds of processor time for one cache line at a random place of BYTES, in 2M pages where there are any: with one
   chain of dependent loads (latency), and with more of them side by side (as many misses in flight). */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>

enum { LINE = 64, MOST = 32, LOADS = 20000000 };

static double seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return now.tv_sec + now.tv_nsec * 1e-9;
}

int main(int argc, char **argv) {
    uint64_t lines = (argc > 1 ? strtoull(argv[1], NULL, 0) : 1ull << 28) / LINE, state = 1;
    uint64_t (*memory)[LINE / 8] = aligned_alloc(1 << 21, lines * LINE);
    if (!memory || lines < 2 * MOST)
        return 1;
    madvise(memory, lines * LINE, MADV_HUGEPAGE);
    for (uint64_t i = 0; i < lines; i++)
        memory[i][0] = i;
    /* Sattolo's algorithm: one cycle through all lines. */
    for (uint64_t i = lines - 1; i > 0; i--) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        uint64_t other = (state >> 33) % i, kept = memory[i][0];
        memory[i][0] = memory[other][0], memory[other][0] = kept;
    }
    for (int chains = 1; chains <= MOST; chains *= 2) {
        uint64_t at[MOST], sum = 0;
        for (int c = 0; c < chains; c++)
            at[c] = lines / MOST * c;
        double begin = seconds();
        for (int i = 0; i < LOADS / chains; i++)
            for (int c = 0; c < chains; c++)
                at[c] = memory[at[c]][0];
        double spent = seconds() - begin;
        for (int c = 0; c < chains; c++)
            sum += at[c];
        printf("%d %.2f%s\n", chains, spent / (LOADS / chains * chains) * 1e9, sum == 1 ? " " : "");
    }
}

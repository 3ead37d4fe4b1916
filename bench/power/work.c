/* Two kinds of work of exactly known amount, for planted differences: power_work compute|memory STEPS [MIB].
 *
 * compute: one chain of dependent multiplications. memory: one chain of dependent updates at random places of MIB
 * mebibytes, which are first touched as the chain comes by. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

static uint64_t next(uint64_t x) { return x * 6364136223846793005u + 1442695040888963407u; }

int main(int argc, char **argv) {
    if (argc < 3) {
        fprintf(stderr, "usage: %s compute|memory STEPS [MIB]\n", argv[0]);
        return 2;
    }
    uint64_t steps = strtoull(argv[2], NULL, 10), x = 1;
    if (strcmp(argv[1], "compute") == 0) {
        for (uint64_t i = 0; i < steps; i++)
            x = next(x);
    } else {
        uint64_t words = (argc > 3 ? strtoull(argv[3], NULL, 10) : 64) << 17;
        uint64_t *memory =
            mmap(NULL, words * 8, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (memory == MAP_FAILED) {
            perror("mmap");
            return 1;
        }
        for (uint64_t i = 0; i < steps; i++) {
            /* The high bits choose the place; what was there goes into the next one, so no two overlap. */
            uint64_t *place = memory + (uint64_t)(((unsigned __int128)x * words) >> 64);
            x = next(x + *place);
            *place ^= x;
        }
    }
    printf("%llu\n", (unsigned long long)x);
    return 0;
}

/* Random sbrk up and down against a shadow: every page that comes back is zero, every page kept is kept. */
#include "guest.h"

enum { MOST = 8192 };
static unsigned stamp[MOST];

int main(int argc, char **argv) {
    uint64_t seed = argc > 1 ? strtoull(argv[1], NULL, 0) : 1;
    long operations = argc > 2 ? atol(argv[2]) : 100;
    unsigned char *base = sbrk(0);
    base = (unsigned char *)(((uintptr_t)base + PAGE - 1) & ~(PAGE - 1));
    CHECK(brk(base) == 0);
    size_t pages = 0;
    for (long i = 0; i < operations; i++) {
        size_t target = random_next(&seed) % 4 ? random_next(&seed) % MOST : pages + (random_next(&seed) % 70) - 35;
        if (target > MOST) continue;
        if (random_next(&seed) % 2)
            CHECK(brk(base + target * PAGE) == 0);
        else
            CHECK(sbrk(((intptr_t)target - (intptr_t)pages) * (intptr_t)PAGE) == base + pages * PAGE);
        CHECK(sbrk(0) == base + target * PAGE);
        for (size_t at = pages; at < target; at++) {
            if (!all_zero(base + at * PAGE, PAGE)) FAIL("operation %ld: heap page %zu is not zero", i, at);
            stamp[at] = 0;
        }
        pages = target;
        for (int writes = 0; writes < 400 && pages; writes++) {
            size_t at = random_next(&seed) % pages;
            stamp[at] = (unsigned)random_next(&seed) | 1;
            memcpy(base + at * PAGE + 2040, &stamp[at], sizeof stamp[at]);
        }
        for (size_t at = 0; at < pages; at++)
            if (memcmp(base + at * PAGE + 2040, &stamp[at], sizeof stamp[at]) != 0)
                FAIL("operation %ld: heap page %zu lost its content", i, at);
    }
    CHECK(brk(base) == 0);
    churn(seed, 300, 100 * KIB);
    return ok();
}

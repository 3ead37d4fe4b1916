/* realloc across the mmap threshold in both directions keeps content (glibc grows big blocks by mremap). */
#include "guest.h"

int main(void) {
    uint64_t seed = 3;
    unsigned char *p = NULL;
    size_t bytes = 0;
    for (int i = 0; i < 120; i++) {
        size_t next = 1 + random_next(&seed) % (i % 3 == 0 ? 3 * MIB : i % 3 == 1 ? 300 * KIB : 5000);
        unsigned char *q = realloc(p, next);
        CHECK(q);
        CHECK(holds(q, bytes < next ? bytes : next, 1));
        fill(q, next, 1);
        p = q;
        bytes = next;
    }
    free(p);
    unsigned char *both[2] = {malloc(200 * KIB), malloc(200 * KIB)};
    for (size_t size = 200 * KIB; size < 12 * MIB; size *= 2)
        for (int i = 0; i < 2; i++) {
            fill(both[i], size, 5 + i);
            both[i] = realloc(both[i], 2 * size);
            CHECK(both[i] && holds(both[i], size, 5 + i));
        }
    free(both[0]);
    free(both[1]);
    return ok();
}

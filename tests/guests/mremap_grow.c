/* mremap that grows: content kept, new part zero; in place when it must not move, ENOMEM when it cannot. */
#include "guest.h"

int main(void) {
    /* Doubling a region many times, as realloc does. */
    size_t bytes = 64 * KIB;
    unsigned char *p = map_anon(bytes);
    fill(p, bytes, 1);
    while (bytes < 64 * MIB) {
        unsigned char *q = mremap(p, bytes, 2 * bytes, MREMAP_MAYMOVE);
        CHECK(q != MAP_FAILED);
        CHECK(holds(q, bytes, 1));
        CHECK(all_zero(q + bytes, bytes));
        bytes *= 2;
        p = q;
        fill(p, bytes, 1);
    }
    CHECK(munmap(p, bytes) == 0);

    /* A neighbour stands in the way: growing in place fails and leaves everything as it was. */
    p = map_anon(8 * MIB);
    fill(p, 4 * MIB, 2);
    fill(p + 4 * MIB, 4 * MIB, 3);
    CHECK(mprotect(p + 4 * MIB, 4 * MIB, PROT_READ) == 0);
    CHECK_ERRNO(mremap(p, 4 * MIB, 5 * MIB, 0), MAP_FAILED, ENOMEM);
    CHECK(holds(p, 4 * MIB, 2) && holds(p + 4 * MIB, 4 * MIB, 3));
    unsigned char *moved = mremap(p, 4 * MIB, 5 * MIB, MREMAP_MAYMOVE);
    CHECK(moved != MAP_FAILED && moved != p);
    CHECK(holds(moved, 4 * MIB, 2) && all_zero(moved + 4 * MIB, MIB));
    CHECK(is_gone(p));
    CHECK(holds(p + 4 * MIB, 4 * MIB, 3));
    fill(moved, 5 * MIB, 4);
    CHECK(holds(p + 4 * MIB, 4 * MIB, 3));

    /* Room after it (just unmapped): growing in place works. */
    p = map_anon(6 * MIB);
    fill(p, 6 * MIB, 5);
    CHECK(munmap(p + 2 * MIB, 4 * MIB) == 0);
    CHECK(mremap(p, 2 * MIB, 3 * MIB, 0) == p);
    CHECK(holds(p, 2 * MIB, 5) && all_zero(p + 2 * MIB, MIB));
    fill(p + 2 * MIB, MIB, 6);
    return ok();
}

/* mremap that shrinks: the front stays where it is, the tail is gone and comes back zero. */
#include "guest.h"

int main(void) {
    unsigned char *p = map_anon(9 * MIB);
    fill(p, 9 * MIB, 1);
    CHECK(mremap(p, 9 * MIB, 5 * MIB + PAGE, 0) == p);
    CHECK(holds(p, 5 * MIB + PAGE, 1));
    CHECK(is_gone(p + 5 * MIB + PAGE));
    CHECK(mremap(p, 5 * MIB + PAGE, PAGE, MREMAP_MAYMOVE) == p);
    CHECK(holds(p, PAGE, 1));
    CHECK(is_gone(p + PAGE));
    unsigned char *q = mremap(p, PAGE, 9 * MIB, MREMAP_MAYMOVE);
    CHECK(q != MAP_FAILED);
    CHECK(holds(q, PAGE, 1) && all_zero(q + PAGE, 9 * MIB - PAGE));

    /* Unaligned lengths are rounded up. */
    fill(q, 9 * MIB, 2);
    CHECK(mremap(q, 9 * MIB - 5, 3 * PAGE - 100, 0) == q);
    CHECK(holds(q, 3 * PAGE, 2));
    CHECK(is_gone(q + 3 * PAGE));
    return ok();
}

/* MREMAP_DONTUNMAP: the pages move, the old range stays mapped and reads as zero (garbage collectors use it). */
#include "guest.h"

int main(void) {
    unsigned char *p = map_anon(5 * MIB);
    fill(p, 5 * MIB, 1);
    unsigned char *q = mremap(p, 5 * MIB, 5 * MIB, MREMAP_MAYMOVE | MREMAP_DONTUNMAP, NULL);
    CHECK(q != MAP_FAILED && q != p);
    CHECK(holds(q, 5 * MIB, 1));
    CHECK(all_zero(p, 5 * MIB));
    fill(p, 5 * MIB, 2);
    CHECK(holds(q, 5 * MIB, 1) && holds(p, 5 * MIB, 2));
    unsigned char *r = mremap(p, 5 * MIB, 5 * MIB, MREMAP_MAYMOVE | MREMAP_DONTUNMAP | MREMAP_FIXED, q);
    CHECK(r == q);
    CHECK(holds(q, 5 * MIB, 2) && all_zero(p, 5 * MIB));
    CHECK_ERRNO(mremap(p, 5 * MIB, 4 * MIB, MREMAP_MAYMOVE | MREMAP_DONTUNMAP, NULL), MAP_FAILED, EINVAL);
    CHECK(munmap(p, 5 * MIB) == 0 && munmap(q, 5 * MIB) == 0);

    /* Of two kinds, or with a hole: an error, and nothing moves. Regression: it moved, where the kernel moves several mappings at once
     * to a place that is given. */
    p = map_anon(16 * PAGE);
    fill(p, 16 * PAGE, 3);
    CHECK(mprotect(p, 8 * PAGE, PROT_READ) == 0);
    CHECK_ERRNO(mremap(p, 16 * PAGE, 16 * PAGE, MREMAP_MAYMOVE | MREMAP_DONTUNMAP, NULL), MAP_FAILED, EFAULT);
    CHECK(holds(p, 16 * PAGE, 3));
    CHECK(munmap(p + 8 * PAGE, 4 * PAGE) == 0);
    CHECK_ERRNO(mremap(p, 16 * PAGE, 16 * PAGE, MREMAP_MAYMOVE | MREMAP_DONTUNMAP, NULL), MAP_FAILED, EFAULT);
    CHECK(holds(p, 8 * PAGE, 3) && holds_from(p + 12 * PAGE, 4 * PAGE, 3, 12 * PAGE));
    CHECK(munmap(p, 16 * PAGE) == 0);
    return ok();
}

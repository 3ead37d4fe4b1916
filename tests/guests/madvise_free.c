/* MADV_FREE and the other advice a program may give: content is old or zero, later writes stay. */
#include "guest.h"

int main(void) {
    unsigned char *p = map_anon(6 * MIB);
    fill(p, 6 * MIB, 1);
    CHECK(madvise(p + MIB, 3 * MIB, MADV_FREE) == 0);
    for (size_t at = MIB; at < 4 * MIB; at += PAGE)
        CHECK(all_zero(p + at, PAGE) || holds_from(p + at, PAGE, 1, at));
    fill(p + MIB, 3 * MIB, 2);
    CHECK(holds(p + MIB, 3 * MIB, 2) && holds(p, MIB, 1) && holds_from(p + 4 * MIB, 2 * MIB, 1, 4 * MIB));
    const int harmless[] = {MADV_NORMAL, MADV_RANDOM,  MADV_SEQUENTIAL, MADV_WILLNEED, MADV_HUGEPAGE,
                            MADV_NOHUGEPAGE, MADV_DONTDUMP, MADV_DODUMP};
    fill(p, 6 * MIB, 3);
    for (size_t i = 0; i < sizeof harmless / sizeof *harmless; i++) {
        if (madvise(p + 5 * PAGE, 4 * MIB, harmless[i]) != 0) CHECK(errno == EINVAL); /* not in this kernel */
        CHECK(holds(p, 6 * MIB, 3));
    }
    return ok();
}

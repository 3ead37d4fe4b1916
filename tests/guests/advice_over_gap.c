/* Advice and locks over blocks with a gap between them reach what is mapped, and say ENOMEM.
 * Regression: if the range ended inside a block, under 2M pages such a call never returned. */
#include "guest.h"

static int resident(unsigned char *p) {
    unsigned char there;
    CHECK(mincore(p, PAGE, &there) == 0);
    return there & 1;
}

int main(void) {
    unsigned char *room = mmap(NULL, 16 * MIB, PROT_NONE, ANON | MAP_NORESERVE, -1, 0);
    CHECK(room != MAP_FAILED);
    CHECK(munmap(room, 16 * MIB) == 0);
    for (size_t gap = PAGE; gap < 8 * MIB; gap *= 8) {
        unsigned char *low = mmap(room, 64 * KIB, RW, ANON | MAP_FIXED, -1, 0);
        CHECK(low == room);
        unsigned char *high = mmap(low + 64 * KIB + gap, 4 * MIB, RW, ANON | MAP_FIXED, -1, 0);
        CHECK(high == low + 64 * KIB + gap);
        size_t reach = (size_t)(high - low) + MIB;
        static const int advice[] = {MADV_DONTDUMP, MADV_DODUMP, MADV_NORMAL, MADV_RANDOM, MADV_DONTFORK, MADV_DOFORK};
        for (size_t i = 0; i < sizeof advice / sizeof *advice; i++)
            CHECK_ERRNO(madvise(low, reach, advice[i]), -1, ENOMEM);
        memset(low, 1, 64 * KIB);
        memset(high, 2, 4 * MIB);
        CHECK_ERRNO(madvise(low, reach, MADV_DONTNEED), -1, ENOMEM);
        CHECK(low[0] == 0 && high[0] == 0 && high[MIB - 1] == 0 && high[MIB] == 2 && high[4 * MIB - 1] == 2);
        CHECK_ERRNO(mlock2(low, 2 * PAGE + 64 * KIB, MLOCK_ONFAULT), -1, ENOMEM);
        munlock(low, 64 * KIB);
        high[0] = 3;
        CHECK(resident(high));
        CHECK(munmap(low, 64 * KIB) == 0 && munmap(high, 4 * MIB) == 0);
    }
    return ok();
}

/* MADV_DONTNEED zeroes exactly the pages named, whatever the page size below; in heap and mappings. */
#include "guest.h"

static void drop(unsigned char *p, size_t total, size_t at, size_t length) {
    fill(p, total, 1);
    CHECK(madvise(p + at, length, MADV_DONTNEED) == 0);
    CHECK(all_zero(p + at, length));
    CHECK(holds(p, at, 1) && holds_from(p + at + length, total - at - length, 1, at + length));
    fill(p + at, length, 2);
    CHECK(holds(p, at, 1) && holds(p + at, length, 2));
}

int main(void) {
    unsigned char *p = map_anon(10 * MIB);
    drop(p, 10 * MIB, 0, PAGE);
    drop(p, 10 * MIB, 2 * MIB + 3 * PAGE, PAGE);
    drop(p, 10 * MIB, 3 * MIB, 4 * MIB);
    drop(p, 10 * MIB, 2 * MIB, 2 * MIB);
    drop(p, 10 * MIB, 10 * MIB - PAGE, PAGE);
    drop(p, 10 * MIB, 0, 10 * MIB);
    unsigned char *heap;
    CHECK(posix_memalign((void **)&heap, PAGE, 120 * KIB) == 0);
    drop(heap, 120 * KIB, 3 * PAGE, 5 * PAGE);
    CHECK(madvise(p, 0, MADV_DONTNEED) == 0);
    CHECK_ERRNO(madvise(p + 1, PAGE, MADV_DONTNEED), -1, EINVAL);
    CHECK_ERRNO(madvise(p, PAGE, 12345), -1, EINVAL);
    CHECK(munmap(p + MIB, MIB) == 0);
    fill(p, MIB, 3);
    CHECK_ERRNO(madvise(p, 3 * MIB, MADV_DONTNEED), -1, ENOMEM); /* a hole: the rest is still dropped */
    CHECK(all_zero(p, MIB) && all_zero(p + 2 * MIB, MIB));
    CHECK(posix_madvise(p, MIB, POSIX_MADV_WILLNEED) == 0);
    fill(p, MIB, 4);
    CHECK(posix_madvise(p, MIB, POSIX_MADV_DONTNEED) == 0 && holds(p, MIB, 4)); /* POSIX's does nothing */
    return ok();
}

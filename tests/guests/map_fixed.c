/* MAP_FIXED into, over and across mappings: exactly the named pages are replaced, by zero. */
#include "guest.h"

static void replace(unsigned char *base, size_t total, size_t at, size_t length) {
    fill(base, total, 1);
    CHECK(mmap(base + at, length, RW, ANON | MAP_FIXED, -1, 0) == base + at);
    CHECK(all_zero(base + at, length));
    CHECK(holds(base, at, 1) && holds_from(base + at + length, total - at - length, 1, at + length));
    fill(base + at, length, 2);
    CHECK(holds(base, at, 1));
}

int main(void) {
    unsigned char *p = map_anon(12 * MIB);
    replace(p, 12 * MIB, 0, PAGE);
    replace(p, 12 * MIB, 5 * PAGE, 2 * MIB);
    replace(p, 12 * MIB, 2 * MIB, 4 * MIB);
    replace(p, 12 * MIB, 12 * MIB - PAGE, PAGE);
    replace(p, 12 * MIB, 0, 12 * MIB);

    /* Across the end of a mapping into free space, and across a hole. */
    CHECK(munmap(p + 6 * MIB, 6 * MIB) == 0);
    fill(p, 6 * MIB, 3);
    CHECK(mmap(p + 5 * MIB, 3 * MIB, RW, ANON | MAP_FIXED, -1, 0) == p + 5 * MIB);
    CHECK(all_zero(p + 5 * MIB, 3 * MIB) && holds(p, 5 * MIB, 3));
    CHECK(munmap(p, 12 * MIB) == 0);

    /* A file over anonymous memory and back. */
    unsigned char *q = map_anon(4 * MIB);
    fill(q, 4 * MIB, 4);
    int fd = memfd_create("guest", 0);
    CHECK(fd >= 0 && ftruncate(fd, MIB) == 0);
    CHECK(mmap(q + MIB, MIB, RW, MAP_SHARED | MAP_FIXED, fd, 0) == q + MIB);
    CHECK(all_zero(q + MIB, MIB));
    fill(q + MIB, MIB, 5);
    unsigned char first;
    CHECK(pread(fd, &first, 1, 7) == 1 && first == pattern_byte(7, 5));
    CHECK(mmap(q + MIB, MIB, RW, ANON | MAP_FIXED, -1, 0) == q + MIB);
    CHECK(all_zero(q + MIB, MIB));
    CHECK(pread(fd, &first, 1, 7) == 1 && first == pattern_byte(7, 5));
    CHECK(holds(q, MIB, 4) && holds_from(q + 2 * MIB, 2 * MIB, 4, 2 * MIB));
    CHECK_ERRNO(mmap(q + 1, PAGE, RW, ANON | MAP_FIXED, -1, 0), MAP_FAILED, EINVAL);

    /* MAP_POPULATE over a block: all of it is there at once. */
    static unsigned char resident[1024];
    CHECK(mmap(q, 4 * MIB, RW, ANON | MAP_FIXED | MAP_POPULATE, -1, 0) == q);
    CHECK(mincore(q, 4 * MIB, resident) == 0);
    for (size_t i = 0; i < sizeof resident; i++) CHECK(resident[i] & 1);
    CHECK(all_zero(q, 4 * MIB));

    /* Far away, where nothing is: fixed means fixed, in the middle of the address space too. */
    for (uintptr_t at = 0x500000000000; at < 0x580000000000; at += 0x11000000000) {
        unsigned char *far = mmap((void *)at, 3 * MIB, RW, ANON | MAP_FIXED_NOREPLACE, -1, 0);
        CHECK(far == (void *)at);
        fill(far, 3 * MIB, 6);
        CHECK(munmap(far, 3 * MIB) == 0);
    }
    return ok();
}

/* Address hints: honoured where the range is free, never destructive where it is not; MAP_32BIT stays low. */
#include "guest.h"

int main(void) {
    unsigned char *p = map_anon(16 * MIB);
    fill(p, 16 * MIB, 1);
    CHECK(munmap(p + 4 * MIB, 8 * MIB) == 0);
    unsigned char *q = mmap(p + 6 * MIB, MIB, RW, ANON, -1, 0);
    CHECK(q == p + 6 * MIB);
    CHECK(all_zero(q, MIB));
    unsigned char *r = mmap(p, 2 * MIB, RW, ANON, -1, 0); /* taken: somewhere else */
    CHECK(r != MAP_FAILED && (r + 2 * MIB <= p || r >= p + 4 * MIB));
    CHECK(all_zero(r, 2 * MIB));
    fill(r, 2 * MIB, 2);
    CHECK(holds(p, 4 * MIB, 1));
    unsigned char *unaligned = mmap(p + 9 * MIB + 123, PAGE, RW, ANON, -1, 0); /* rounded down */
    CHECK(unaligned == p + 9 * MIB);
    unsigned char *far = mmap((void *)0x510000000000, 3 * MIB, RW, ANON, -1, 0);
    CHECK(far == (void *)0x510000000000);
    /* Raised to the lowest address that the kernel's setting allows. */
    unsigned char *least = mmap((void *)PAGE, PAGE, RW, ANON, -1, 0);
    CHECK(least != MAP_FAILED && (uintptr_t)least <= MIB);
    unsigned char *low = mmap(NULL, 3 * MIB, RW, ANON | MAP_32BIT, -1, 0);
    CHECK(low != MAP_FAILED && (uintptr_t)low + 3 * MIB <= 0x80000000u);
    CHECK(all_zero(low, 3 * MIB));
    fill(low, 3 * MIB, 3);
    CHECK(munmap(low, 3 * MIB) == 0);
    /* Beyond 47 bits only with a hint up there; never by itself. */
    CHECK((uintptr_t)map_anon(PAGE) < 0x800000000000u);
    return ok();
}

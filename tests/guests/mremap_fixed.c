/* MREMAP_FIXED: moves onto a given address, replaces what was there, keeps content and protection. */
#include "guest.h"

int main(void) {
    unsigned char *from = map_anon(4 * MIB), *area = map_anon(12 * MIB);
    fill(from, 4 * MIB, 1);
    fill(area, 12 * MIB, 2);
    unsigned char *to = area + 3 * MIB + 5 * PAGE;
    CHECK(mremap(from, 4 * MIB, 4 * MIB, MREMAP_MAYMOVE | MREMAP_FIXED, to) == to);
    CHECK(holds(to, 4 * MIB, 1));
    CHECK(holds(area, 3 * MIB + 5 * PAGE, 2));
    size_t rest = 7 * MIB + 5 * PAGE;
    CHECK(holds_from(area + rest, 12 * MIB - rest, 2, rest));
    CHECK(is_gone(from));

    /* Part of a mapping, growing while it moves, to an address nobody uses. */
    unsigned char *spot = map_anon(16 * MIB);
    CHECK(munmap(spot, 16 * MIB) == 0);
    CHECK(mremap(area, MIB, 2 * MIB, MREMAP_MAYMOVE | MREMAP_FIXED, spot) == spot);
    CHECK(holds(spot, MIB, 2) && all_zero(spot + MIB, MIB));
    CHECK(is_gone(area) && area[MIB] == pattern_byte(MIB, 2));

    /* Protection travels along. */
    CHECK(mprotect(spot, 2 * MIB, PROT_READ) == 0);
    unsigned char *next = spot + 4 * MIB;
    CHECK(mremap(spot, 2 * MIB, 2 * MIB, MREMAP_MAYMOVE | MREMAP_FIXED, next) == next);
    CHECK(fault_signal(next, WRITE_ACCESS) == SIGSEGV && holds(next, MIB, 2));
    CHECK_ERRNO(mremap(next, MIB, MIB, MREMAP_MAYMOVE | MREMAP_FIXED, next + MIB / 2), MAP_FAILED, EINVAL);
    CHECK_ERRNO(mremap(next, MIB, MIB, MREMAP_FIXED, spot), MAP_FAILED, EINVAL);
    CHECK(holds(next, MIB, 2));
    return ok();
}

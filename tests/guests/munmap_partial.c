/* Partial munmap at the start, in the middle and at the end: the rest stays, the hole faults, reuse is zero. */
#include "guest.h"

static void punch(size_t total, size_t at, size_t length) {
    unsigned char *p = map_anon(total);
    fill(p, total, 1);
    CHECK(munmap(p + at, length) == 0);
    CHECK(holds(p, at, 1));
    CHECK(holds_from(p + at + length, total - at - length, 1, at + length));
    CHECK(is_gone(p + at));
    CHECK(is_gone(p + at + length - PAGE));
    /* The hole can be had again, empty, at the very place and anywhere else. */
    CHECK(mmap(p + at, length, RW, ANON | MAP_FIXED_NOREPLACE, -1, 0) == p + at);
    CHECK(all_zero(p + at, length));
    fill(p + at, length, 2);
    CHECK(holds(p, at, 1) && holds_from(p + at + length, total - at - length, 1, at + length));
    CHECK(munmap(p, total) == 0);
    unsigned char *again = map_anon(total);
    CHECK(all_zero(again, total));
    CHECK(is_page_aligned(again) && (uintptr_t)again > 65536);
    CHECK(munmap(again, total) == 0);
}

int main(void) {
    const size_t totals[] = {8 * PAGE, 2 * MIB, 4 * MIB, 5 * MIB + 3 * PAGE};
    for (size_t i = 0; i < sizeof totals / sizeof *totals; i++) {
        size_t t = totals[i];
        punch(t, 0, PAGE);
        punch(t, 0, t / 2 / PAGE * PAGE);
        punch(t, t / 4 / PAGE * PAGE, PAGE);
        punch(t, t / 4 / PAGE * PAGE, t / 2 / PAGE * PAGE);
        punch(t, t - PAGE, PAGE);
        punch(t, t / 2 / PAGE * PAGE, t - t / 2 / PAGE * PAGE);
    }
    /* Across two mappings and the hole between them. */
    unsigned char *p = map_anon(6 * MIB);
    fill(p, 6 * MIB, 3);
    CHECK(munmap(p + 2 * MIB, 2 * MIB) == 0);
    CHECK(munmap(p + MIB, 4 * MIB) == 0);
    CHECK(holds(p, MIB, 3) && holds_from(p + 5 * MIB, MIB, 3, 5 * MIB));
    CHECK(is_gone(p + MIB) && is_gone(p + 5 * MIB - 1));
    CHECK(munmap(p + MIB, 4 * MIB) == 0); /* nothing there: still success */
    return ok();
}

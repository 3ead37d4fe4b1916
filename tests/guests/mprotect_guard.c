/* Guard pages really guard: between mappings, inside them, inside the heap, behind a thread's stack. */
#include "guest.h"

static void guard_at(unsigned char *p, size_t total, size_t at) {
    fill(p, total, 1);
    CHECK(mprotect(p + at, PAGE, PROT_NONE) == 0);
    CHECK(fault_signal(p + at, READ_ACCESS) == SIGSEGV);
    CHECK(fault_signal(p + at + PAGE - 1, WRITE_ACCESS) == SIGSEGV);
    if (at > 0) CHECK(holds(p, at, 1));
    if (at + PAGE < total) CHECK(holds_from(p + at + PAGE, total - at - PAGE, 1, at + PAGE));
    CHECK(mprotect(p + at, PAGE, PROT_READ) == 0);
    CHECK(holds(p, total, 1));
    CHECK(fault_signal(p + at, WRITE_ACCESS) == SIGSEGV);
    CHECK(mprotect(p + at, PAGE, RW) == 0);
    CHECK(fault_signal(p + at, WRITE_ACCESS) == 0);
}

int main(void) {
    const size_t totals[] = {3 * PAGE, 2 * MIB, 6 * MIB, 5 * MIB + 7 * PAGE};
    for (size_t i = 0; i < 4; i++) {
        unsigned char *p = map_anon(totals[i]);
        guard_at(p, totals[i], 0);
        guard_at(p, totals[i], totals[i] / 2 / PAGE * PAGE);
        guard_at(p, totals[i], totals[i] - PAGE);
    }
    /* Inside the heap and inside a big malloc. */
    const size_t sizes[] = {100 * KIB, 700 * KIB, 5 * MIB};
    for (size_t i = 0; i < 3; i++) {
        unsigned char *block;
        CHECK(posix_memalign((void **)&block, PAGE, sizes[i]) == 0);
        guard_at(block, sizes[i], sizes[i] / 2 / PAGE * PAGE);
        free(block);
    }
    /* Reserve with PROT_NONE, open piece by piece. */
    unsigned char *r = mmap(NULL, 32 * MIB, PROT_NONE, ANON, -1, 0);
    CHECK(r != MAP_FAILED);
    for (size_t at = 0; at < 8 * MIB; at += 512 * KIB) {
        CHECK(fault_signal(r + at, READ_ACCESS) == SIGSEGV);
        CHECK(mprotect(r + at, 512 * KIB, RW) == 0);
        CHECK(all_zero(r + at, 512 * KIB));
        fill(r + at, 512 * KIB, 1);
        CHECK(fault_signal(r + at + 512 * KIB, READ_ACCESS) == SIGSEGV);
    }
    CHECK(fault_signal(r + 32 * MIB - 1, READ_ACCESS) == SIGSEGV);
    CHECK_ERRNO(mprotect(r + 1, PAGE, RW), -1, EINVAL);
    CHECK(munmap(r, 32 * MIB) == 0);
    CHECK_ERRNO(mprotect(r, PAGE, RW), -1, ENOMEM);
    return ok();
}

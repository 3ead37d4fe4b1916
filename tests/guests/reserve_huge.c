/* 1 TiB reserved with PROT_NONE|MAP_NORESERVE, pieces committed and released (as managed runtimes do). */
#include "guest.h"

int main(void) {
    size_t total = 1024 * GIB;
    unsigned char *p = mmap(NULL, total, PROT_NONE, ANON | MAP_NORESERVE, -1, 0);
    CHECK(p != MAP_FAILED);
    /* Trim to a 1 GiB-aligned window, as allocators do. */
    unsigned char *aligned = (unsigned char *)(((uintptr_t)p + GIB - 1) & ~(GIB - 1));
    if (aligned != p) CHECK(munmap(p, (size_t)(aligned - p)) == 0);
    total = (total - (size_t)(aligned - p)) & ~(GIB - 1);
    p = aligned;
    for (size_t at = 0; at < total; at += 100 * GIB) {
        CHECK(mprotect(p + at, 3 * MIB, RW) == 0);
        CHECK(all_zero(p + at, 3 * MIB));
        fill(p + at, 3 * MIB, 1);
        CHECK(fault_signal(p + at + 3 * MIB, READ_ACCESS) == SIGSEGV);
        unsigned char *q = p + at + 50 * GIB;
        if (q + 3 * MIB > p + total) break;
        CHECK(mmap(q, 3 * MIB, RW, ANON | MAP_FIXED, -1, 0) == q);
        fill(q, 3 * MIB, 2);
        /* Released by mapping PROT_NONE over it. */
        CHECK(mmap(q, 3 * MIB, PROT_NONE, ANON | MAP_FIXED | MAP_NORESERVE, -1, 0) == q);
        CHECK(fault_signal(q, READ_ACCESS) == SIGSEGV);
        CHECK(mprotect(q, 3 * MIB, RW) == 0 && all_zero(q, 3 * MIB));
    }
    CHECK(holds(p, 3 * MIB, 1));
    CHECK(munmap(p, total) == 0);
    unsigned char *lazy = mmap(NULL, 64 * GIB, RW, ANON | MAP_NORESERVE, -1, 0); /* more than there is */
    CHECK(lazy != MAP_FAILED);
    lazy[0] = lazy[63 * GIB] = 1;
    return ok();
}

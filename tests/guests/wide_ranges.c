/* Ranges that begin below a block or end beyond it, over addresses where nothing is mapped: munmap takes what is there, madvise
 * advises it and mprotect stops at the hole; both say ENOMEM. Afterwards new memory is whole. */
#include "guest.h"

#define TIB ((uintptr_t)1 << 40)

/* The free addresses around [p, p + bytes), as far as 1 MiB below the TiB that it lies in and 1 MiB beyond the next one. */
static void room_around(unsigned char *p, size_t bytes, uintptr_t *low, uintptr_t *high) {
    const uintptr_t at = (uintptr_t)p, end = at + bytes;
    *low = (at & ~(TIB - 1)) - MIB;
    *high = ((end | (TIB - 1)) + 1) + TIB + MIB;
    FILE *maps = fopen("/proc/self/maps", "r");
    char line[512];
    CHECK(maps);
    while (fgets(line, sizeof line, maps)) {
        uintptr_t from, to;
        CHECK(sscanf(line, "%lx-%lx ", &from, &to) == 2);
        if (to <= at && to > *low) *low = to;
        if (from >= end && from < *high) *high = from;
        if (from < at && to > at) *low = at;   /* merged with what lies before it */
        if (from < end && to > end && (!getenv("PAGELAB_PLAN") || to - end > 4 * MIB)) *high = end;
    }
    fclose(maps);
    if (*high > (TIB << 7) - MIB) *high = end;
}

static void used_again(size_t bytes) {
    for (int i = 0; i < 20; i++) {
        unsigned char *p = map_anon(bytes);
        CHECK(all_zero(p, bytes));
        fill(p, bytes, 3);
        CHECK(holds(p, bytes, 3) && munmap(p, bytes) == 0);
    }
}

int main(void) {
    const size_t sizes[] = {PAGE, 128 * KIB, 5 * MIB};
    for (int i = 0; i < 3; i++) {
        const size_t bytes = sizes[i];
        uintptr_t low, high;
        unsigned char *p = map_anon(bytes);
        fill(p, bytes, 1);
        room_around(p, bytes, &low, &high);

        if (low < (uintptr_t)p) { /* from below */
            CHECK_ERRNO(madvise((void *)low, (uintptr_t)p + bytes - low, MADV_DONTNEED), -1, ENOMEM);
            CHECK(all_zero(p, bytes));
            CHECK_ERRNO(mprotect((void *)low, (uintptr_t)p + bytes - low, PROT_NONE), -1, ENOMEM);
            fill(p, bytes, 2);
        }
        if (high > (uintptr_t)p + bytes) { /* beyond the end */
            CHECK_ERRNO(madvise(p, high - (uintptr_t)p, MADV_DONTNEED), -1, ENOMEM);
            CHECK(all_zero(p, bytes));
            CHECK_ERRNO(mprotect(p, high - (uintptr_t)p, PROT_READ), -1, ENOMEM);
            CHECK(fault_signal(p, WRITE_ACCESS) == SIGSEGV);
            CHECK(mprotect(p, bytes, RW) == 0);
            fill(p, bytes, 2);
        }
        CHECK(munmap((void *)low, high - low) == 0);
        CHECK(is_gone(p));
        used_again(bytes);

        p = map_anon(bytes); /* something else put over all of it, and taken away again */
        fill(p, bytes, 1);
        room_around(p, bytes, &low, &high);
        if (low + 64 * KIB < (uintptr_t)p) low = (uintptr_t)p - 64 * KIB;
        if (high > (uintptr_t)p + bytes + 64 * KIB) high = (uintptr_t)p + bytes + 64 * KIB;
        CHECK(mmap((void *)low, high - low, PROT_READ, ANON | MAP_FIXED | MAP_NORESERVE, -1, 0) == (void *)low);
        CHECK(all_zero(p, bytes));
        CHECK(munmap((void *)low, high - low) == 0);
        used_again(bytes);
    }
    return ok();
}

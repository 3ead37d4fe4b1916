/* The break is lowered over memory that the program protected, unmapped or mapped something else over, and raised again. */
#include "guest.h"
#include <sys/syscall.h>

#define TOP (5 * MIB)

static unsigned char *base;

static void raise_to_top(void) {
    CHECK(brk(base + TOP) == 0);
    fill(base, TOP, 1);
}

static void lowered_and_raised(size_t to) {
    CHECK(brk(base + to) == 0);
    CHECK(brk(base + TOP) == 0);
    CHECK(all_zero(base + to, TOP - to));
    fill(base + to, TOP - to, 2);
    CHECK(brk(base) == 0);
}

int main(void) {
    base = (unsigned char *)(((uintptr_t)sbrk(0) + 2 * MIB - 1) & ~(2 * MIB - 1));
    const size_t to = 2 * MIB + 100 * KIB;
    const int protections[] = {PROT_READ, PROT_NONE};
    for (int i = 0; i < 2; i++) {
        raise_to_top(); /* a few pages, in the tile that stays and in one that goes */
        CHECK(mprotect(base + to + 50 * PAGE, 10 * PAGE, protections[i]) == 0);
        CHECK(mprotect(base + 4 * MIB + 50 * PAGE, 10 * PAGE, protections[i]) == 0);
        lowered_and_raised(to);
        raise_to_top(); /* a whole tile */
        CHECK(mprotect(base + 2 * MIB, 2 * MIB, protections[i]) == 0);
        CHECK(madvise(base + 2 * MIB, 20 * PAGE, MADV_DONTNEED) == 0);
        CHECK(mprotect(base + 2 * MIB, 100 * KIB, RW) == 0);
        CHECK(all_zero(base + 2 * MIB, 20 * PAGE));
        CHECK(holds_from(base + 2 * MIB + 20 * PAGE, 100 * KIB - 20 * PAGE, 1, 2 * MIB + 20 * PAGE));
        lowered_and_raised(to);
    }
    raise_to_top();
    CHECK(munmap(base + to + 50 * PAGE, 10 * PAGE) == 0);
    lowered_and_raised(to);

    /* Shared memory mapped over the heap: it goes with the break, and its contents stay where else they are seen. */
    int fd = memfd_create("shared", 0);
    CHECK(fd >= 0 && ftruncate(fd, 10 * PAGE) == 0);
    unsigned char *shared = mmap(NULL, 10 * PAGE, RW, MAP_SHARED, fd, 0);
    CHECK(shared != MAP_FAILED);
    fill(shared, 10 * PAGE, 9);
    raise_to_top();
    CHECK(mmap(base + to + 50 * PAGE, 10 * PAGE, RW, MAP_SHARED | MAP_FIXED, fd, 0) == base + to + 50 * PAGE);
    lowered_and_raised(to);
    CHECK(holds(shared, 10 * PAGE, 9));
    return ok();
}

/* A place that has just become empty is moved, mapped and grown into; what is there then must stay when the next
 * place becomes empty. (The library once held an emptied tile back, and unmapped it under a mapping moved there.) */
#include "guest.h"

/* Empties a place of 64 KiB that nothing else shares; returns where it was. */
static unsigned char *empty_one(void) {
    unsigned char *p = map_anon(64 * KIB);
    CHECK(all_zero(p, 64 * KIB));
    fill(p, 64 * KIB, 77);
    CHECK(munmap(p, 64 * KIB) == 0);
    return p;
}

static void moved_by_the_kernel(void) {
    unsigned char *p = map_anon(4 * MIB), *wall = map_anon(2 * MIB);
    fill(p, 4 * MIB, 1);
    fill(wall, 2 * MIB, 2);
    empty_one();
    unsigned char *q = mremap(p, 4 * MIB, 6 * MIB, MREMAP_MAYMOVE);
    CHECK(q != MAP_FAILED);
    empty_one();
    empty_one();
    CHECK(holds(q, 4 * MIB, 1) && all_zero(q + 4 * MIB, 2 * MIB) && holds(wall, 2 * MIB, 2));
    CHECK(munmap(q, 6 * MIB) == 0 && munmap(wall, 2 * MIB) == 0);
}

/* Something of 2 MiB comes to lie exactly where a small mapping was. */
static void placed(int how) {
    unsigned char *wall = map_anon(6 * MIB);
    fill(wall, 6 * MIB, 3);
    unsigned char *at = empty_one(), *got;
    switch (how) {
    case 0: got = mmap(at, 2 * MIB, RW, ANON | MAP_FIXED_NOREPLACE, -1, 0); break;
    case 1: got = mmap(at, 2 * MIB, RW, ANON, -1, 0); break;
    default: got = mmap(at, 2 * MIB, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    }
    if (got != MAP_FAILED) {
        CHECK(got == at || how == 1);
        fill(got, 2 * MIB, 4);
        empty_one();
        empty_one();
        CHECK(holds(got, 2 * MIB, 4));
        CHECK(munmap(got, 2 * MIB) == 0);
    } else {
        CHECK(errno == EEXIST); /* natively the next mapping may be closer than 2 MiB */
    }
    CHECK(holds(wall, 6 * MIB, 3));
    CHECK(munmap(wall, 6 * MIB) == 0);
}

int main(void) {
    for (int i = 0; i < 3; i++) {
        moved_by_the_kernel();
        for (int how = 0; how < 3; how++) placed(how);
    }
    /* Onto a given address: in a window of our own, since natively the neighbours are somebody's. */
    unsigned char *window = map_anon(16 * MIB), *source = map_anon(2 * MIB);
    unsigned char *at = (unsigned char *)(((uintptr_t)window + 4 * MIB) & ~(2 * MIB - 1));
    fill(source, 2 * MIB, 5);
    CHECK(munmap(window, 16 * MIB) == 0);
    unsigned char *small = mmap(at, 64 * KIB, RW, ANON | MAP_FIXED_NOREPLACE, -1, 0);
    CHECK(small == at);
    fill(small, 64 * KIB, 6);
    CHECK(munmap(small, 64 * KIB) == 0);
    CHECK(mremap(source, 2 * MIB, 2 * MIB, MREMAP_MAYMOVE | MREMAP_FIXED, at) == at);
    empty_one();
    empty_one();
    CHECK(holds(at, 2 * MIB, 5));
    return ok();
}

/* Arguments at the edges of what mmap, munmap and mremap accept, and MAP_POPULATE as its manual page has it. */
#include "guest.h"

#ifndef MAP_FIXED_NOREPLACE
#define MAP_FIXED_NOREPLACE 0x100000
#endif

static size_t resident(unsigned char *p, size_t pages) {
    unsigned char there[64];
    size_t count = 0;
    CHECK(mincore(p, pages * PAGE, there) == 0);
    for (size_t i = 0; i < pages; i++) count += there[i] & 1;
    return count;
}

int main(void) {
    const size_t end = (size_t)1 << 47; /* a program's addresses end a page below */
    unsigned char *p = map_anon(4 * PAGE);
    CHECK_ERRNO(mmap(p, PAGE, RW, ANON, -1, 1), MAP_FAILED, EINVAL);
    CHECK_ERRNO(mmap(NULL, PAGE, RW, ANON, -1, PAGE - 1), MAP_FAILED, EINVAL);
    CHECK_ERRNO(mremap(p, PAGE, end, MREMAP_MAYMOVE), MAP_FAILED, EINVAL);
    CHECK_ERRNO(munmap(p, end - (uintptr_t)p), -1, EINVAL);
    CHECK(munmap(p, 4 * PAGE) == 0);
    CHECK_ERRNO(mmap(p, -PAGE, RW, ANON | MAP_FIXED_NOREPLACE, -1, 0), MAP_FAILED, ENOMEM);
    CHECK_ERRNO(mmap(p, -PAGE, RW, ANON | MAP_FIXED, -1, 0), MAP_FAILED, ENOMEM);
    CHECK(mmap(p, 4 * PAGE, RW, ANON | MAP_FIXED_NOREPLACE | MAP_POPULATE, -1, 0) == p && resident(p, 4) == 4);
    CHECK(munmap(p, 4 * PAGE) == 0);
    for (int prot = 1; prot < 8; prot++) {
        if (prot == PROT_EXEC) continue;
        p = mmap(NULL, 33 * PAGE, prot, ANON | MAP_POPULATE, -1, 0);
        CHECK(p != MAP_FAILED);
        if (resident(p, 33) != 33) FAIL("protection %d: %zu of 33 pages are there", prot, resident(p, 33));
        CHECK(munmap(p, 33 * PAGE) == 0);
    }
    return ok();
}

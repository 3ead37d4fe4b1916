/* A request that cannot be, or that takes what only the kernel has, costs the program none of its memory's pages: what lay
 * in one huge page before lies in one after it. */
#include "guest.h"

/* KiB of [p, p + bytes) in huge pages. */
static long huge_kib(const void *p) {
    FILE *file = fopen("/proc/self/smaps", "r");
    char line[512];
    uintptr_t from, to;
    long huge = 0, inside = 0, kib;
    CHECK(file);
    while (fgets(line, sizeof line, file)) {
        char dash;
        if (sscanf(line, "%lx%c%lx ", &from, &dash, &to) == 3 && dash == '-')
            inside = from <= (uintptr_t)p && (uintptr_t)p < to;
        else if (inside && sscanf(line, "AnonHugePages: %ld", &kib) == 1)
            huge = kib;
    }
    fclose(file);
    return huge;
}

int main(void) {
    unsigned char *p = map_anon(MIB);
    fill(p, MIB, 1);
    long before = huge_kib(p);
    void *reserved = mmap(NULL, 2 * (size_t)1024 * GIB, PROT_NONE, ANON | MAP_NORESERVE, -1, 0);
    CHECK(huge_kib(p) == before);
    if (reserved != MAP_FAILED) CHECK(munmap(reserved, 2 * (size_t)1024 * GIB) == 0);
    CHECK(mmap(NULL, (size_t)1 << 46, RW, ANON, -1, 0) == MAP_FAILED);
    CHECK(mmap(NULL, (size_t)1 << 60, RW, ANON, -1, 0) == MAP_FAILED);
    void *reserved_pages = mmap(NULL, 64 * (size_t)1024 * MIB, RW, ANON | MAP_HUGETLB, -1, 0);
    CHECK(reserved_pages == MAP_FAILED);
    CHECK(malloc((size_t)1 << 50) == NULL);
    CHECK(sbrk((intptr_t)1 << 45) == (void *)-1);
    CHECK(huge_kib(p) == before);
    /* A closed page beside it does not split it either. */
    unsigned char *closed = mmap(NULL, PAGE, PROT_NONE, ANON, -1, 0);
    CHECK(closed != MAP_FAILED && munmap(closed, PAGE) == 0);
    unsigned char *q = map_anon(MIB);
    fill(q, MIB, 2);
    long whole = huge_kib(q);
    closed = mmap(NULL, PAGE, PROT_NONE, ANON, -1, 0);
    CHECK(closed != MAP_FAILED && huge_kib(q) == whole);
    CHECK(holds(p, MIB, 1) && holds(q, MIB, 2));
    return ok();
}

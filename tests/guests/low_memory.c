/* A block of several mappings below 2 GiB, without a reservation, with terabytes of free addresses above it, moves to where pools are.
 * Regression: to see whether a range is one mapping, it was grown by 64 TiB, which succeeded there: an mmap with MAP_32BIT then failed
 * with ENOMEM. */
#include "guest.h"

enum { PAGES = 26, FIRST = 3 };

static size_t largest_mapping(void) {
    FILE *file = fopen("/proc/self/maps", "r");
    size_t largest = 0, start, end;
    char rest[4096];
    CHECK(file);
    while (fscanf(file, "%zx-%zx%4095[^\n]", &start, &end, rest) == 3)
        if (end - start > largest) largest = end - start;
    CHECK(fclose(file) == 0);
    return largest;
}

static void moves(size_t to_pages) {
    const int flags = MAP_32BIT | MAP_NORESERVE;
    unsigned char *low = mmap(NULL, PAGES * PAGE, RW, ANON | flags, -1, 0);
    if (low == MAP_FAILED) FAIL("no low memory");
    fill(low, PAGES * PAGE, 1);
    CHECK(madvise(low, FIRST * PAGE, MADV_SEQUENTIAL) == 0); /* two mappings */
    unsigned char *target = map_anon(to_pages * PAGE), *end = low + PAGES * PAGE;
    size_t before = largest_mapping();

    /* Kernels refuse it (from 6.17 on only what also grows) and may have unmapped the target; it is no fault if it succeeds. */
    unsigned char *at = mremap(low, PAGES * PAGE, to_pages * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, target);
    if (at == MAP_FAILED) CHECK(errno == EFAULT);
    CHECK(holds(at == MAP_FAILED ? low : target, PAGES * PAGE, 1));
    if (largest_mapping() > before + ((size_t)1 << 40)) FAIL("a mapping of %zu bytes", largest_mapping());
    unsigned char *more = mmap(NULL, PAGE, RW, ANON | flags, -1, 0);
    if (more == MAP_FAILED) FAIL("no low memory is left");
    CHECK(munmap(more, PAGE) == 0);
    if (at == MAP_FAILED) CHECK(munmap(low, (size_t)(end - low)) == 0);
    CHECK(munmap(target, to_pages * PAGE) == 0);
}

int main(void) {
    moves(PAGES);
    moves(2 * PAGES);
    return ok();
}

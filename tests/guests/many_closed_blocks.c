/* More small mappings without write access than a process may have mappings: the kernel makes neighbours one, so that all of them succeed.
 * Regression: each had a tile of its own, and at 65,000 there was no other mapping to be had; the search for a place took longer with each.
 * GUEST_POOL_BYTES: a pool of frames may grow to that size, by a mapping for each 2 MiB; no other mapping may be left. */
#include "guest.h"
#include <time.h>

enum { BLOCKS = 70000 };
static unsigned char *block[BLOCKS];

static size_t mappings(void) {
    FILE *file = fopen("/proc/self/maps", "r");
    size_t lines = 0;
    CHECK(file);
    for (int c; (c = getc(file)) != EOF;) lines += c == '\n';
    CHECK(fclose(file) == 0);
    return lines;
}

/* How many mappings a pool of frames may gain. */
static size_t chunks(void) {
    const char *pool = getenv("GUEST_POOL_BYTES");
    return pool ? strtoul(pool, NULL, 10) / (2 * MIB) : 0;
}

static int limit(void) {
    FILE *file = fopen("/proc/sys/vm/max_map_count", "r");
    int number = 0;
    CHECK(file && fscanf(file, "%d", &number) == 1 && fclose(file) == 0);
    return number;
}

static double processor_s(void) {
    struct timespec now;
    CHECK(clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now) == 0);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static void all_succeed(int prot, int flags) {
    size_t before = mappings();
    double begun = processor_s();
    for (size_t i = 0; i < BLOCKS; i++) {
        block[i] = mmap(NULL, PAGE, prot, ANON | flags, -1, 0);
        if (block[i] == MAP_FAILED) FAIL("block %zu of protection %d", i, prot);
    }
    if (processor_s() - begun > 8) FAIL("%d blocks took %.1f s", BLOCKS, processor_s() - begun);
    if (mappings() > before + BLOCKS / 8) FAIL("protection %d: %zu mappings", prot, mappings());
    for (size_t i = 0; i < BLOCKS; i += 1000) {
        CHECK(fault_signal(block[i], READ_ACCESS) == (prot == PROT_NONE ? SIGSEGV : 0));
        CHECK(mprotect(block[i], PAGE, RW) == 0 && all_zero(block[i], PAGE));
        fill(block[i], PAGE, (unsigned)i);
    }
    for (size_t i = 0; i < BLOCKS; i += 1000) CHECK(holds(block[i], PAGE, (unsigned)i));
    for (size_t i = 0; i < BLOCKS; i++) CHECK(munmap(block[i], PAGE) == 0);
    if (mappings() > before + chunks() + 8) FAIL("protection %d: %zu mappings are left of %zu", prot, mappings(), before);
}

int main(void) {
    if (limit() > BLOCKS) return ok(); /* nothing to learn */
    all_succeed(PROT_NONE, 0);
    all_succeed(PROT_READ, 0);
    all_succeed(RW, MAP_NORESERVE);
    return ok();
}

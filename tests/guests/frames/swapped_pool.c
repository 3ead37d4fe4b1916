/* The free pages of the pool go to swap before they are handed out. They would come back on frames of the kernel's
 * choice: what is placed must lie as promised all the same. Prints "no swap" where this machine has none. */
#include "frames.h"

#ifndef MADV_PAGEOUT
#define MADV_PAGEOUT 21
#endif
enum { MOST = 4096 };
static const uintptr_t POOL_START = 0x65c000000000, POOL_END = 0x65d000000000;

static int has_swap(void) {
    char line[256];
    int lines = 0;
    FILE *file = fopen("/proc/swaps", "r");
    CHECK(file);
    while (fgets(line, sizeof line, file)) lines++;
    fclose(file);
    return lines > 1;
}

/* Swaps the pool out, but for what is being worked on just now; how many pages of it that were. */
static size_t swap_pool_out(void) {
    static uintptr_t start[MOST], end[MOST];
    size_t count = 0, before = 0, left = 0;
    char line[512];
    FILE *maps = fopen("/proc/self/maps", "r");
    CHECK(maps);
    while (fgets(line, sizeof line, maps) && count < MOST)
        if (sscanf(line, "%lx-%lx", &start[count], &end[count]) == 2)
            count += start[count] >= POOL_START && end[count] <= POOL_END;
    fclose(maps);
    for (size_t i = 0; i < count; i++) {
        size_t pages = (end[i] - start[i]) / PAGE;
        before += resident_pages((void *)start[i], pages);
        if (syscall(SYS_madvise, start[i], end[i] - start[i], MADV_PAGEOUT) != 0 && errno != EINVAL && errno != ENOMEM)
            FAIL("madvise of the pool at %lx", start[i]); /* EINVAL: locked by a strategy that pins; ENOMEM: given up since */
        left += resident_pages((void *)start[i], pages);
    }
    return before > left ? before - left : 0;
}

int main(void) {
    if (!has_swap()) {
        puts("no swap");
        return 0;
    }
    unsigned char *p = map_anon(4000 * PAGE);
    size_t swapped = 0;
    for (size_t round = 0; round < 5; round++) {
        unsigned char *q = p + round * 600 * PAGE;
        write_tags(q, 100, round);
        swapped += swap_pool_out();
        /* By a fault, in a system call, and ahead of need. */
        write_tags(q + 100 * PAGE, 200, round);
        CHECK_PLACED(q + 100 * PAGE, 200);
        check_tags(q + 100 * PAGE, 200, round);
        swapped += swap_pool_out();
        int zero = open("/dev/zero", O_RDONLY);
        CHECK(zero >= 0 && read(zero, q + 300 * PAGE, 50 * PAGE) == 50 * (ssize_t)PAGE && close(zero) == 0);
        CHECK_PLACED(q + 300 * PAGE, 50);
        swapped += swap_pool_out();
        CHECK(madvise(q + 400 * PAGE, 100 * PAGE, MADV_POPULATE_WRITE) == 0);
        CHECK_PLACED(q + 400 * PAGE, 100);
        swapped += swap_pool_out();
        write_tags(q + 500 * PAGE, 3, 77);
        unsigned char *to = q + 551 * PAGE;
        CHECK(mremap(q + 100 * PAGE, 40 * PAGE, 40 * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, to) == to);
        check_tags(to, 40, round);
    }
    if (swapped < 2000) FAIL("only %zu pages of the pool were ever swapped out", swapped);
    return ok();
}

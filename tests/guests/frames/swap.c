/* Pages go to swap and come back: the contents are the same, and what is touched for the first time is placed.
 * Prints "no swap" where this machine has none. */
#include "frames.h"

#ifndef MADV_PAGEOUT
#define MADV_PAGEOUT 21
#endif

static int has_swap(void) {
    char line[256];
    int lines = 0;
    FILE *file = fopen("/proc/swaps", "r");
    CHECK(file);
    while (fgets(line, sizeof line, file)) lines++;
    fclose(file);
    return lines > 1;
}

int main(void) {
    if (!has_swap()) {
        puts("no swap");
        return 0;
    }
    unsigned char *p = map_anon(2000 * PAGE);
    write_tags(p, 1000, 1);
    CHECK_PLACED(p, 1000);
    CHECK(madvise(p, 2000 * PAGE, MADV_PAGEOUT) == 0);
    size_t left = resident_pages(p, 1000);
    if (left > 900) FAIL("%zu of 1000 pages are still resident", left);
    check_tags(p, 1000, 1);
    CHECK(all_zero(p + 1000 * PAGE, 1000 * PAGE));
    CHECK_PLACED(p + 1100 * PAGE, 900); /* the first hundred may have been placed ahead, and been swapped, too */
    CHECK(madvise(p, 2000 * PAGE, MADV_PAGEOUT) == 0);
    pid_t pid = fork();
    if (pid == 0) {
        check_tags(p, 1000, 1);
        write_tags(p, 2000, 3);
        _exit(0);
    }
    CHECK(wait_for(pid) == 0);
    check_tags(p, 1000, 1);
    CHECK(madvise(p, 2000 * PAGE, MADV_PAGEOUT) == 0);
    p = mremap(p, 2000 * PAGE, 3000 * PAGE, MREMAP_MAYMOVE);
    CHECK(p != MAP_FAILED);
    check_tags(p, 1000, 1);
    CHECK(madvise(p, 3000 * PAGE, MADV_PAGEOUT) == 0);
    CHECK(madvise(p, 3000 * PAGE, MADV_DONTNEED) == 0 && all_zero(p, 3000 * PAGE));
    CHECK(munmap(p, 3000 * PAGE) == 0);
    return ok();
}

/* At the end of its address space a program has had all of it: memory that was mapped ahead is given up before a request
 * is refused. */
#include "guest.h"
#include <sys/resource.h>

enum { LIMIT_MIB = 256, SIZE_MIB = 2 };

static size_t mapped_bytes(void) {
    unsigned long pages;
    FILE *file = fopen("/proc/self/statm", "r");
    CHECK(file && fscanf(file, "%lu", &pages) == 1);
    fclose(file);
    return pages * PAGE;
}

int main(void) {
    if (has_reserved_pages()) return ok(); /* a part of such a page cannot be unmapped */
    size_t before = mapped_bytes();
    struct rlimit limit = {before + LIMIT_MIB * MIB, before + LIMIT_MIB * MIB};
    CHECK(setrlimit(RLIMIT_AS, &limit) == 0);
    /* Each block is a little longer than 2 MiB. */
    size_t block = SIZE_MIB * MIB + PAGE, count = 0;
    while (mmap(NULL, block, RW, ANON, -1, 0) != MAP_FAILED) count++;
    CHECK(errno == ENOMEM);
    /* docs/preload.md promises the rest, except some MiB. */
    if (count < (LIMIT_MIB - 8) * MIB / block) FAIL("%zu blocks", count);
    return ok();
}

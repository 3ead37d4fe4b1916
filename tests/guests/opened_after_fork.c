/* A child closes and opens memory that it shares with its parent, as collectors of garbage do: none of it is copied by that.
 * Regression: under fetch = "prefault" all of it was. */
#include "guest.h"

enum { BYTES = 64 << 20, MOST_MIB = 16 };

static long private_mib(void) {
    FILE *file = fopen("/proc/self/smaps_rollup", "r");
    char line[200];
    long kib = 0;
    CHECK(file);
    while (fgets(line, sizeof line, file)) sscanf(line, "Private_Dirty: %ld", &kib);
    CHECK(fclose(file) == 0);
    return kib >> 10;
}

int main(void) {
    unsigned char *p = map_anon(BYTES);
    fill(p, BYTES, 1);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        long before = private_mib(); /* reserved pages are copied by fork itself (docs/preload.md) */
        CHECK(mprotect(p, BYTES, PROT_READ) == 0 && mprotect(p, BYTES, RW) == 0);
        p[5] = 2;
        if (private_mib() > before + MOST_MIB) FAIL("the child has %ld MiB of its own, and had %ld", private_mib(), before);
        _exit(0);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    CHECK(munmap(p, BYTES) == 0);
    return ok();
}

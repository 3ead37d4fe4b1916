/* A hint where the stack is to grow is not followed: the kernel keeps a gap below a stack.
 * Regression: it was, and the stack ran into the mapping (SIGSEGV). */
#include "guest.h"

static int deep(int calls) {
    volatile char frame[4096];
    frame[0] = (char)calls;
    return calls ? deep(calls - 1) + frame[0] : 0;
}

int main(void) {
    char line[512];
    unsigned long start = 0;
    FILE *maps = fopen("/proc/self/maps", "r");
    CHECK(maps);
    while (fgets(line, sizeof line, maps))
        if (strstr(line, "[stack]")) CHECK(sscanf(line, "%lx-", &start) == 1);
    CHECK(fclose(maps) == 0 && start);
    for (size_t below = 64 * KIB; below <= MIB; below *= 2) {
        char *hint = (char *)start - below;
        char *at = mmap(hint, 64 * KIB, RW, ANON, -1, 0);
        CHECK(at != MAP_FAILED && at != hint);
        memset(at, 1, 64 * KIB);
    }
    deep(500);
    return ok();
}

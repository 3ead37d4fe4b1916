// Speed depends on the size of its pages, which chance decides: it asks for huge pages in half of its executions.
#include "work.h"
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>

enum { SIZE = 4 << 20 };

static int huge(void *start) {
    FILE *maps = fopen("/proc/self/smaps", "r");
    char line[512];
    unsigned long from = 0, to = 0, low, high, kib = 0, at = (unsigned long)start;
    int found = 0;
    while (maps && fgets(line, sizeof line, maps)) {
        if (sscanf(line, "%lx-%lx ", &low, &high) == 2)
            from = low, to = high;
        else if (from <= at && at < to && sscanf(line, "AnonHugePages: %lu", &kib) == 1)
            found = kib > 0;
    }
    if (maps)
        fclose(maps);
    return found;
}

int main(void) {
    unsigned char coin = 0;
    char *memory = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED || getrandom(&coin, 1, 0) != 1)
        return 1;
    madvise(memory, SIZE, coin & 1 ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
    memset(memory, 1, SIZE);
    work(huge(memory + (2 << 20)) ? 15 : 35);
}

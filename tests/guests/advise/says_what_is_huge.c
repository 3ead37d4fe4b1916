/* Reports a time that depends on which of its blocks lie in huge pages alone, so that what there is to gain is known:
 * 100 ms, less what argument i (in ms) says for block i, of 8 MiB each; less of it where only a part is in huge pages. */
#include "../guest.h"

enum { BLOCK = 8 << 20 };

static size_t huge_kib(const void *at) {
    char line[512];
    uintptr_t start, end;
    size_t kib = 0, is_ours = 0;
    FILE *smaps = fopen("/proc/self/smaps", "r");
    CHECK(smaps);
    while (fgets(line, sizeof line, smaps)) {
        if (sscanf(line, "%lx-%lx ", &start, &end) == 2) is_ours = start < (uintptr_t)at + BLOCK && end > (uintptr_t)at;
        if (is_ours && strncmp(line, "AnonHugePages:", 14) == 0) kib += strtoull(line + 14, NULL, 10);
    }
    CHECK(fclose(smaps) == 0);
    return kib;
}

int main(int argc, char **argv) {
    char *block[16];
    double ms = 100;
    CHECK(argc <= 16);
    for (int i = 1; i < argc; i++) {
        block[i] = mmap(NULL, BLOCK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        CHECK(block[i] != MAP_FAILED);
        /* Neighbours with other advice are mappings of their own; of one mapping smaps would give the sum. */
        if (i % 2) CHECK(madvise(block[i], BLOCK, MADV_DONTDUMP) == 0);
        memset(block[i], 1, BLOCK);
    }
    for (int i = 1; i < argc; i++)
        ms -= atof(argv[i]) * (double)huge_kib(block[i]) / (BLOCK / 1024);
    printf("op %f ms\n", ms);
    return 0;
}

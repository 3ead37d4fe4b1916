/* Times pairs of mmap and munmap. Arguments: bytes, pairs, pages to touch (0 none, 1 the first, 2 all), 1 to ask for
 * huge pages as a program would by itself. Prints nanoseconds of CPU time a pair. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>

static double cpu_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

static void pairs(size_t bytes, long count, int touch, int huge) {
    for (long i = 0; i < count; i++) {
        volatile char *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (p == MAP_FAILED) exit(2);
        if (huge && madvise((void *)p, bytes, MADV_HUGEPAGE) != 0) exit(3);
        if (touch == 1) p[0] = 1;
        if (touch == 2)
            for (size_t at = 0; at < bytes; at += 4096) p[at] = 1;
        if (munmap((void *)p, bytes) != 0) exit(4);
    }
}

int main(int argc, char **argv) {
    if (argc != 5) return 1;
    size_t bytes = strtoull(argv[1], NULL, 10);
    long count = atol(argv[2]);
    int touch = atoi(argv[3]), huge = atoi(argv[4]);
    pairs(bytes, count / 10 + 1, touch, huge);
    double begin = cpu_ns();
    pairs(bytes, count, touch, huge);
    printf("%.1f\n", (cpu_ns() - begin) / (double)count);
    return 0;
}

/* Times how pages come: governed memory against the kernel's own, in one process, in alternation.
 *
 * Governed memory is mapped through the C library. The kernel's own is mapped by the system call itself, which libpagelab
 * does not see; MADV_NOHUGEPAGE, so that both are pages of 4 KiB. Arguments:
 *   touch PAGES STRIDE REPEATS PAUSE_MS BUSY SHIFT     first touches, one in STRIDE pages, ascending
 *   populate PAGES 1 REPEATS PAUSE_MS BUSY SHIFT       MADV_POPULATE_WRITE
 * SHIFT: each repeat's pages begin so many pages further on than the last one's (modulo 65,536), so that what a strategy by
 * address wants is new each time.
 * BUSY: threads that run in user space meanwhile (TLB shootdowns have somebody to reach). Only the touching is timed; pauses
 * leave the pool time to fill. The first three repeats are not printed. Each line, of the kernel's memory and then of the
 * governed: ns a touched page, ns of CPU time of all threads a touched page, pages resident. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

enum { PAGE = 4096, WARM_UP = 3, SHIFTS = 1 << 16 };
static size_t pages, stride, shift;
static int populates;
static volatile int done;

static void need(int condition, const char *what) {
    if (condition) return;
    perror(what);
    exit(2);
}

struct sample {
    double wall_ns, cpu_ns;
    size_t resident;
};

static double now_ns(clockid_t clock) {
    struct timespec now;
    clock_gettime(clock, &now);
    return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

static void *spin(void *argument) {
    volatile unsigned char *own = argument;
    for (size_t i = 0; !done; i++) own[i * 64 % (64 * PAGE)]++;
    return NULL;
}

static size_t resident(unsigned char *p) {
    static unsigned char state[1 << 20];
    need(pages <= sizeof state && mincore(p, pages * PAGE, state) == 0, "mincore");
    size_t count = 0;
    for (size_t i = 0; i < pages; i++) count += state[i] & 1;
    return count;
}

/* `at`: where the pages begin in their mapping. `is_libc`: by the C library's functions, which libpagelab governs; else by the system calls themselves. */
static struct sample measure(int is_libc, size_t at) {
    int prot = PROT_READ | PROT_WRITE, flags = MAP_PRIVATE | MAP_ANONYMOUS;
    size_t bytes = pages * PAGE, whole = (pages + (shift ? SHIFTS : 0)) * PAGE, touched = (pages + stride - 1) / stride;
    unsigned char *mapped = is_libc ? mmap(NULL, whole, prot, flags, -1, 0)
                                    : (void *)syscall(SYS_mmap, NULL, whole, prot, flags, -1, 0);
    need(mapped != MAP_FAILED, "mmap");
    if (!is_libc) need(syscall(SYS_madvise, mapped, whole, MADV_NOHUGEPAGE) == 0, "MADV_NOHUGEPAGE");
    volatile unsigned char *p = mapped + at * PAGE;
    double cpu = now_ns(CLOCK_PROCESS_CPUTIME_ID), wall = now_ns(CLOCK_MONOTONIC);
    if (!populates)
        for (size_t i = 0; i < pages; i += stride) p[i * PAGE] = 1;
    else if (is_libc)
        need(madvise((void *)p, bytes, MADV_POPULATE_WRITE) == 0, "MADV_POPULATE_WRITE");
    else
        need(syscall(SYS_madvise, p, bytes, MADV_POPULATE_WRITE) == 0, "MADV_POPULATE_WRITE");
    wall = now_ns(CLOCK_MONOTONIC) - wall;
    cpu = now_ns(CLOCK_PROCESS_CPUTIME_ID) - cpu;
    struct sample sample = {wall / (double)touched, cpu / (double)touched, resident((unsigned char *)p)};
    need((is_libc ? munmap(mapped, whole) : (int)syscall(SYS_munmap, mapped, whole)) == 0, "munmap");
    return sample;
}

static void pause_for(long milliseconds) {
    struct timespec left = {milliseconds / 1000, milliseconds % 1000 * 1000000};
    while (nanosleep(&left, &left) != 0) {}
}

int main(int argc, char **argv) {
    if (argc != 8) return 1;
    populates = strcmp(argv[1], "populate") == 0;
    pages = strtoull(argv[2], NULL, 10);
    stride = strtoull(argv[3], NULL, 10);
    long repeats = atol(argv[4]), milliseconds = atol(argv[5]), busy = atol(argv[6]);
    shift = strtoull(argv[7], NULL, 10);
    if (pages == 0 || stride == 0) return 1;
    for (long i = 0; i < busy; i++) {
        pthread_t thread;
        void *own = aligned_alloc(PAGE, 64 * PAGE);
        memset(own, 1, 64 * PAGE);
        need(pthread_create(&thread, NULL, spin, own) == 0, "pthread_create");
    }
    for (long i = 0; i < repeats + WARM_UP; i++) {
        struct sample sample[2];
        pause_for(milliseconds);
        for (int turn = 0; turn < 2; turn++) {
            int is_libc = turn ^ (int)(i % 2);
            sample[is_libc] = measure(is_libc, (size_t)i * shift % SHIFTS);
        }
        for (int side = 0; side < 2 && i >= WARM_UP; side++)
            printf("%.1f %.1f %zu%c", sample[side].wall_ns, sample[side].cpu_ns, sample[side].resident, side ? '\n' : ' ');
    }
    done = 1;
    return 0;
}

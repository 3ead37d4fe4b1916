/* Threads that touch fresh pages at the same time, each its own, one page after the other.
 *
 * Governed memory is mapped through the C library, the kernel's own by the system call itself, which libpagelab does not
 * see; MADV_NOHUGEPAGE, so that both are pages of 4 KiB. Arguments: THREADS PAGES REPEATS PAUSE_MS; all threads together
 * touch PAGES pages, each in an order without neighbours. The first repeat is not printed. Each line: ns a page, of the
 * kernel's memory and of the governed. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { PAGE = 4096, MOST_THREADS = 64 };
static size_t threads, pages;
static unsigned char *memory;
static pthread_barrier_t barrier;

static void need(int condition, const char *what) {
    if (condition) return;
    perror(what);
    exit(2);
}

static double now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

static void *touch(void *argument) {
    size_t each = pages / threads;
    volatile unsigned char *own = memory + (size_t)argument * each * PAGE;
    for (;;) {
        pthread_barrier_wait(&barrier);
        own = memory + (size_t)argument * each * PAGE;
        /* 37 and a power of two have no common divisor: each page once. */
        for (size_t i = 0; i < each; i++) own[i * 37 % each * PAGE] = 1;
        pthread_barrier_wait(&barrier);
    }
    return NULL;
}

static double measure(int is_libc) {
    int prot = PROT_READ | PROT_WRITE, flags = MAP_PRIVATE | MAP_ANONYMOUS;
    memory = is_libc ? mmap(NULL, pages * PAGE, prot, flags, -1, 0)
                     : (void *)syscall(SYS_mmap, NULL, pages * PAGE, prot, flags, -1, 0);
    need(memory != MAP_FAILED, "mmap");
    if (!is_libc) need(syscall(SYS_madvise, memory, pages * PAGE, MADV_NOHUGEPAGE) == 0, "MADV_NOHUGEPAGE");
    double begin = now_ns();
    pthread_barrier_wait(&barrier);
    pthread_barrier_wait(&barrier);
    double ns = now_ns() - begin;
    need((is_libc ? munmap(memory, pages * PAGE) : (int)syscall(SYS_munmap, memory, pages * PAGE)) == 0, "munmap");
    return ns / (double)pages;
}

int main(int argc, char **argv) {
    if (argc != 5) return 1;
    threads = strtoull(argv[1], NULL, 10), pages = strtoull(argv[2], NULL, 10);
    long repeats = atol(argv[3]), pause = atol(argv[4]);
    if (threads == 0 || threads > MOST_THREADS || pages % threads || pages / threads & (pages / threads - 1)) return 1;
    need(pthread_barrier_init(&barrier, NULL, (unsigned)threads + 1) == 0, "pthread_barrier_init");
    for (size_t i = 0; i < threads; i++) {
        pthread_t thread;
        need(pthread_create(&thread, NULL, touch, (void *)i) == 0, "pthread_create");
    }
    for (long i = 0; i <= repeats; i++) {
        double ns[2];
        for (int turn = 0; turn < 2; turn++) {
            struct timespec wait = {pause / 1000, pause % 1000 * 1000000};
            nanosleep(&wait, NULL);
            int is_libc = turn ^ (int)(i % 2);
            ns[is_libc] = measure(is_libc);
        }
        if (i > 0) printf("%.1f %.1f\n", ns[0], ns[1]);
    }
    return 0;
}

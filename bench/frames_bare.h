/* Bare frame placement: the system calls behind it, without an engine around them. For the floors of bench/frames.py. */
#pragma once
#include <errno.h>
#include <linux/userfaultfd.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* Since Linux 6.8; the C library's headers may be older. */
struct move {
    uint64_t to, from, len, mode;
    int64_t moved;
};
#define MOVE _IOWR(UFFDIO, 0x05, struct move)
enum { PAGE = 4096, PAGES = 1024, HUGE = 512, FEATURE_MOVE = 1 << 16, DONT_WAKE = 1 };

static int uffd;
static unsigned char *pool, *landing;

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

static void open_uffd(void) {
    uffd = (int)syscall(SYS_userfaultfd, 0);
    need(uffd >= 0, "userfaultfd");
    struct uffdio_api api = {.api = UFFD_API, .features = FEATURE_MOVE};
    need(ioctl(uffd, UFFDIO_API, &api) == 0, "UFFDIO_API");
}

static void move(void *from, void *to, size_t len, uint64_t mode) {
    struct move move = {.to = (uintptr_t)to, .from = (uintptr_t)from, .len = len, .mode = mode};
    while (ioctl(uffd, MOVE, &move) != 0) {
        need(errno == EAGAIN, "UFFDIO_MOVE");
        if (move.moved > 0) move.to += (uint64_t)move.moved, move.from += (uint64_t)move.moved, move.len -= (uint64_t)move.moved;
        move.moved = 0;
    }
}

static void wake(void *from, size_t len) {
    struct uffdio_range range = {(uintptr_t)from, len};
    need(ioctl(uffd, UFFDIO_WAKE, &range) == 0, "UFFDIO_WAKE");
}

static void enrol(void *from, size_t len) {
    struct uffdio_register range = {.range = {(uintptr_t)from, len}, .mode = UFFDIO_REGISTER_MODE_MISSING};
    need(ioctl(uffd, UFFDIO_REGISTER, &range) == 0, "UFFDIO_REGISTER");
}

static unsigned char *map(size_t pages, int is_registered) {
    unsigned char *p = mmap(NULL, pages * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    need(p != MAP_FAILED, "mmap");
    need(madvise(p, pages * PAGE, MADV_NOHUGEPAGE) == 0, "MADV_NOHUGEPAGE");
    if (is_registered) enrol(p, pages * PAGE);
    return p;
}

/* Pages of `huge` huge pages, side by side, into *raw (which is HUGE pages longer). Moving a page out and back splits one. */
static unsigned char *cut(size_t huge, unsigned char **raw) {
    size_t bytes = huge * HUGE * PAGE;
    *raw = mmap(NULL, bytes + HUGE * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    need(*raw != MAP_FAILED, "mmap");
    unsigned char *p = (unsigned char *)(((uintptr_t)*raw + HUGE * PAGE - 1) & ~(uintptr_t)(HUGE * PAGE - 1));
    (void)madvise(p, bytes, MADV_HUGEPAGE);
    for (size_t i = 0; i < bytes; i += PAGE) ((volatile unsigned char *)p)[i] = 1;
    (void)madvise(p, bytes, MADV_NOHUGEPAGE);
    enrol(p, bytes);
    for (size_t i = 0; i < bytes; i += HUGE * PAGE) {
        move(p + i, landing, PAGE, DONT_WAKE);
        move(landing, p + i, PAGE, DONT_WAKE);
    }
    return p;
}

static void make_pool(void) {
    unsigned char *raw;
    landing = map(1, 1);
    pool = cut(PAGES / HUGE, &raw);
}

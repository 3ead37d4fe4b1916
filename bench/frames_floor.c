/* What the system calls behind frame placement cost by themselves: the floor that no engine on this kernel gets below.
 *
 * A pool of pages cut from huge pages, one thread that touches and one that answers its faults on the same processor, and
 * nothing else: no colours, no bookkeeping, no checks. Argument: REPEATS. A line a repeat, ns a page of each of:
 *   the kernel's own faults | UFFDIO_MOVE page by page, 16 pages side by side (both without faults) |
 *   faults answered with one page, 16 single moves, 16 pages side by side */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/userfaultfd.h>
#include <pthread.h>
#include <sched.h>
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
enum { PAGE = 4096, PAGES = 1024, HUGE = 512, FEATURE_MOVE = 1 << 16, DONT_WAKE = 1, WARM_UP = 3 };

static int uffd;
static unsigned char *pool;
static size_t order[PAGES], next;
static int batch, is_run;

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

static void move(void *from, void *to, size_t len, uint64_t mode) {
    struct move move = {.to = (uintptr_t)to, .from = (uintptr_t)from, .len = len, .mode = mode};
    while (ioctl(uffd, MOVE, &move) != 0) {
        need(errno == EAGAIN, "UFFDIO_MOVE");
        if (move.moved > 0) move.to += (uint64_t)move.moved, move.from += (uint64_t)move.moved, move.len -= (uint64_t)move.moved;
        move.moved = 0;
    }
}

/* The next `batch` pages of the pool go to `page`. */
static void fill(unsigned char *page, int wakes) {
    int many = batch > 1 && wakes;
    size_t first = next;
    next += (size_t)batch; /* now: the other thread may go on, to the end, before the last move returns */
    if (is_run) move(pool + first * PAGE, page, (size_t)batch * PAGE, DONT_WAKE);
    for (int i = 0; !is_run && i < batch; i++)
        move(pool + order[first + (size_t)i] * PAGE, page + i * PAGE, PAGE, many || !wakes ? DONT_WAKE : 0);
    struct uffdio_range range = {(uintptr_t)page, (size_t)batch * PAGE};
    if (many) need(ioctl(uffd, UFFDIO_WAKE, &range) == 0, "UFFDIO_WAKE");
}

static void *answer(void *unused) {
    for (struct uffd_msg message;;)
        if (read(uffd, &message, sizeof message) == sizeof message)
            fill((unsigned char *)(message.arg.pagefault.address & ~(uintptr_t)(PAGE - 1)), 1);
    return unused;
}

static unsigned char *map(size_t pages, int is_registered) {
    unsigned char *p = mmap(NULL, pages * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    need(p != MAP_FAILED, "mmap");
    need(madvise(p, pages * PAGE, MADV_NOHUGEPAGE) == 0, "MADV_NOHUGEPAGE");
    struct uffdio_register range = {.range = {(uintptr_t)p, pages * PAGE}, .mode = UFFDIO_REGISTER_MODE_MISSING};
    if (is_registered) need(ioctl(uffd, UFFDIO_REGISTER, &range) == 0, "UFFDIO_REGISTER");
    return p;
}

/* Cut from huge pages: frames side by side. Moving a page out and back splits a huge page. */
static void make_pool(void) {
    unsigned char *raw = mmap(NULL, (PAGES + HUGE) * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    need(raw != MAP_FAILED, "mmap");
    pool = (unsigned char *)(((uintptr_t)raw + HUGE * PAGE - 1) & ~(uintptr_t)(HUGE * PAGE - 1));
    (void)madvise(pool, PAGES * PAGE, MADV_HUGEPAGE);
    memset(pool, 1, PAGES * PAGE);
    (void)madvise(pool, PAGES * PAGE, MADV_NOHUGEPAGE);
    struct uffdio_register range = {.range = {(uintptr_t)pool, PAGES * PAGE}, .mode = UFFDIO_REGISTER_MODE_MISSING};
    need(ioctl(uffd, UFFDIO_REGISTER, &range) == 0, "UFFDIO_REGISTER");
    unsigned char *landing = map(1, 1);
    for (size_t i = 0; i < PAGES; i += HUGE) {
        move(pool + i * PAGE, landing, PAGE, DONT_WAKE);
        move(landing, pool + i * PAGE, PAGE, DONT_WAKE);
    }
    for (size_t i = 0; i < PAGES; i++) order[i] = i * 611 % PAGES; /* 611 is odd: a permutation without neighbours */
}

static void put_back(unsigned char *p) {
    if (is_run) move(p, pool, PAGES * PAGE, DONT_WAKE);
    for (size_t i = 0; !is_run && i < PAGES; i++) move(p + i * PAGE, pool + order[i] * PAGE, PAGE, DONT_WAKE);
    next = 0;
}

enum how { KERNEL, EAGER, FAULTS };

static double measure(enum how how, int pages_at_once, int side_by_side) {
    batch = pages_at_once, is_run = side_by_side;
    unsigned char *p = map(PAGES, how != KERNEL);
    double begin = now_ns();
    for (size_t i = 0; i < PAGES; i += how == EAGER ? (size_t)batch : 1) {
        if (how == EAGER) fill(p + i * PAGE, 0);
        else ((volatile unsigned char *)p)[i * PAGE] = 1;
    }
    double ns = (now_ns() - begin) / PAGES;
    if (how != KERNEL) put_back(p);
    need(munmap(p, PAGES * PAGE) == 0, "munmap");
    return ns;
}

int main(int argc, char **argv) {
    if (argc != 2) return 1;
    uffd = (int)syscall(SYS_userfaultfd, 0);
    need(uffd >= 0, "userfaultfd");
    struct uffdio_api api = {.api = UFFD_API, .features = FEATURE_MOVE};
    need(ioctl(uffd, UFFDIO_API, &api) == 0, "UFFDIO_API");
    cpu_set_t here;
    CPU_ZERO(&here);
    CPU_SET((size_t)sched_getcpu(), &here);
    need(sched_setaffinity(0, sizeof here, &here) == 0, "sched_setaffinity");
    make_pool();
    pthread_t handler;
    need(pthread_create(&handler, NULL, answer, NULL) == 0, "pthread_create");
    for (long i = 0, repeats = atol(argv[1]); i < repeats + WARM_UP; i++) {
        double ns[] = {measure(KERNEL, 1, 0), measure(EAGER, 1, 0),   measure(EAGER, 16, 1),
                       measure(FAULTS, 1, 0), measure(FAULTS, 16, 0), measure(FAULTS, 16, 1)};
        for (size_t k = 0; k < 6 && i >= WARM_UP; k++) printf("%.1f%c", ns[k], k < 5 ? ' ' : '\n');
    }
    return 0;
}

/* What the system calls behind frame placement cost by themselves: the floor that no engine on this kernel gets below.
 *
 * A pool of pages cut from huge pages, one thread that touches and one that answers its faults on the same processor, and
 * nothing else: no colours, no bookkeeping, no checks. Argument: REPEATS. A line a repeat, ns a page of each of:
 *   the kernel's own faults | UFFDIO_MOVE page by page, 16 pages side by side (both without faults) |
 *   faults answered with one page, 16 single moves, 16 pages side by side | a huge page fetched and cut up */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>

#include "frames_bare.h"

enum { WARM_UP = 3 };
static size_t order[PAGES], next;
static int batch, is_run;

/* The next `batch` pages of the pool go to `page`. */
static void fill(unsigned char *page, int wakes) {
    int many = batch > 1 && wakes;
    size_t first = next;
    next += (size_t)batch; /* now: the other thread may go on, to the end, before the last move returns */
    if (is_run) move(pool + first * PAGE, page, (size_t)batch * PAGE, DONT_WAKE);
    for (int i = 0; !is_run && i < batch; i++)
        move(pool + order[first + (size_t)i] * PAGE, page + i * PAGE, PAGE, many || !wakes ? DONT_WAKE : 0);
    if (many) wake(page, (size_t)batch * PAGE);
}

static void *answer(void *unused) {
    for (struct uffd_msg message;;)
        if (read(uffd, &message, sizeof message) == sizeof message)
            fill((unsigned char *)(message.arg.pagefault.address & ~(uintptr_t)(PAGE - 1)), 1);
    return unused;
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

/* As the engine fills its pool, a huge page at a time; what is given back is fetched again, and so in the caches. */
static double populate(void) {
    unsigned char *raw;
    double begin = now_ns();
    unsigned char *p = cut(1, &raw);
    for (size_t i = 0; i < HUGE; i++) ((volatile unsigned char *)p)[i * PAGE] = 0;
    double ns = (now_ns() - begin) / HUGE;
    need(munmap(raw, 2 * HUGE * PAGE) == 0, "munmap");
    return ns;
}

int main(int argc, char **argv) {
    if (argc != 2) return 1;
    open_uffd();
    cpu_set_t here;
    CPU_ZERO(&here);
    CPU_SET((size_t)sched_getcpu(), &here);
    need(sched_setaffinity(0, sizeof here, &here) == 0, "sched_setaffinity");
    make_pool();
    for (size_t i = 0; i < PAGES; i++) order[i] = i * 611 % PAGES; /* 611 is odd: a permutation without neighbours */
    pthread_t handler;
    need(pthread_create(&handler, NULL, answer, NULL) == 0, "pthread_create");
    for (long i = 0, repeats = atol(argv[1]); i < repeats + WARM_UP; i++) {
        double ns[] = {measure(KERNEL, 1, 0), measure(EAGER, 1, 0),   measure(EAGER, 16, 1),
                       measure(FAULTS, 1, 0), measure(FAULTS, 16, 0), measure(FAULTS, 16, 1),
                       populate()};
        for (size_t k = 0; k < 7 && i >= WARM_UP; k++) printf("%.1f%c", ns[k], k < 6 ? ' ' : '\n');
    }
    return 0;
}

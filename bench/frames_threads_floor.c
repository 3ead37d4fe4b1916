/* What the system calls behind frame placement cost where many threads touch fresh pages at the same time, one page a fault:
 * the floor beside frames_threads.c. No colours, no bookkeeping, no checks.
 *
 * Arguments: THREADS REPEATS PAUSE_MS; all threads together touch PAGES pages, each in an order without neighbours. Messages
 * that are read together are answered together: their pages are moved, then their threads woken. A line a repeat, ns a page of:
 *   the kernel's own faults | bare | bare, sleeping 10 us after three and more messages so that others gather | bare, all
 *   threads kept on one processor (which no engine may do) */
#define _GNU_SOURCE
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <sys/prctl.h>

#include "frames_bare.h"

enum { MOST_THREADS = 64, AT_ONCE = 32, MANY = 3, GATHERING_NS = 10000, WARM_UP = 3 };
static size_t threads, order[PAGES], next;
static unsigned char *memory, *where[PAGES];
static volatile int gathers, is_together;
static cpu_set_t all, one;
static pthread_barrier_t barrier;

static void settle(void) { need(sched_setaffinity(0, sizeof all, is_together ? &one : &all) == 0, "sched_setaffinity"); }

static void *answer(void *unused) {
    need(prctl(PR_SET_TIMERSLACK, 1) == 0, "PR_SET_TIMERSLACK");
    struct uffd_msg messages[AT_ONCE];
    for (int was_together = 0;;) {
        ssize_t got = read(uffd, messages, sizeof messages);
        size_t count = got > 0 ? (size_t)got / sizeof *messages : 0;
        if (was_together != is_together) was_together = is_together, settle();
        uintptr_t low = UINTPTR_MAX, high = 0;
        for (size_t i = 0; i < count; i++) {
            uintptr_t page = messages[i].arg.pagefault.address & ~(uintptr_t)(PAGE - 1);
            low = page < low ? page : low, high = page > high ? page : high;
            where[next] = (unsigned char *)page;
            move(pool + order[next++] * PAGE, (void *)page, PAGE, DONT_WAKE);
        }
        if (count > 0) wake((void *)low, high - low + PAGE);
        int zero = 0;
        struct timespec a_while = {0, GATHERING_NS};
        if (gathers && count >= MANY) syscall(SYS_futex, &zero, FUTEX_WAIT_PRIVATE, 0, &a_while, NULL, 0);
    }
    return unused;
}

static void *touch(void *argument) {
    size_t each = PAGES / threads;
    for (;;) {
        pthread_barrier_wait(&barrier);
        settle();
        pthread_barrier_wait(&barrier);
        volatile unsigned char *own = memory + (size_t)argument * each * PAGE;
        /* 37 and a power of two have no common divisor: each page once. */
        for (size_t i = 0; i < each; i++) own[i * 37 % each * PAGE] = 1;
        pthread_barrier_wait(&barrier);
    }
    return NULL;
}

static double measure(int is_registered, int gathering, int together, struct timespec pause) {
    nanosleep(&pause, NULL);
    gathers = gathering, is_together = together;
    memory = map(PAGES, is_registered);
    pthread_barrier_wait(&barrier);
    double begin = now_ns();
    pthread_barrier_wait(&barrier);
    pthread_barrier_wait(&barrier);
    double ns = (now_ns() - begin) / PAGES;
    for (; next > 0; next--) move(where[next - 1], pool + order[next - 1] * PAGE, PAGE, DONT_WAKE);
    need(munmap(memory, PAGES * PAGE) == 0, "munmap");
    return ns;
}

int main(int argc, char **argv) {
    if (argc != 4) return 1;
    threads = strtoull(argv[1], NULL, 10);
    long repeats = atol(argv[2]), pause_ms = atol(argv[3]);
    if (threads == 0 || threads > MOST_THREADS || PAGES % threads || PAGES / threads & (PAGES / threads - 1)) return 1;
    need(sched_getaffinity(0, sizeof all, &all) == 0, "sched_getaffinity");
    CPU_ZERO(&one);
    CPU_SET((size_t)sched_getcpu(), &one);
    open_uffd();
    make_pool();
    for (size_t i = 0; i < PAGES; i++) order[i] = i * 611 % PAGES; /* 611 is odd: a permutation without neighbours */
    need(pthread_barrier_init(&barrier, NULL, (unsigned)threads + 1) == 0, "pthread_barrier_init");
    pthread_t thread;
    need(pthread_create(&thread, NULL, answer, NULL) == 0, "pthread_create");
    for (size_t i = 0; i < threads; i++)
        need(pthread_create(&thread, NULL, touch, (void *)i) == 0, "pthread_create");
    struct timespec pause = {pause_ms / 1000, pause_ms % 1000 * 1000000};
    for (long i = 0; i < repeats + WARM_UP; i++) {
        double ns[] = {measure(0, 0, 0, pause), measure(1, 0, 0, pause), measure(1, 1, 0, pause), measure(1, 0, 1, pause)};
        for (size_t k = 0; k < 4 && i >= WARM_UP; k++) printf("%.1f%c", ns[k], k < 3 ? ' ' : '\n');
    }
    return 0;
}

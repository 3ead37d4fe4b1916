/* While one thread registers memory with a userfaultfd, another writes to it: each write is there afterwards, made before the
 * registration or, by way of the handler, after it. Regression: under prefaulting the library gave pages of zeros back that the other
 * thread wrote to between the look and the end of the page (about one round in ten). */
#include "guest.h"
#include <linux/userfaultfd.h>
#include <poll.h>
#include <stdatomic.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <time.h>

enum { PAGES = 64, ROUNDS = 300 };
static int uffd;
static unsigned char *area;
static atomic_int begun, ended;

static void *serve(void *unused) {
    static unsigned char page[4096] __attribute__((aligned(4096)));
    struct uffd_msg message;
    (void)unused;
    memset(page, 0xee, sizeof page);
    for (;;) {
        struct pollfd wait = {uffd, POLLIN, 0};
        if (poll(&wait, 1, -1) < 0 || read(uffd, &message, sizeof message) != sizeof message) continue;
        if (message.event != UFFD_EVENT_PAGEFAULT) continue;
        uintptr_t at = message.arg.pagefault.address & ~(PAGE - 1);
        struct uffdio_copy copy = {.dst = at, .src = (uintptr_t)page, .len = PAGE};
        if (ioctl(uffd, UFFDIO_COPY, &copy) != 0 && errno != EEXIST) FAIL("UFFDIO_COPY to %zx", (size_t)at);
    }
    return NULL;
}

static uint64_t value(int round, size_t page) { return (uint64_t)round << 32 | (page + 1); }

static volatile uint64_t *word(size_t page) { return (volatile uint64_t *)(area + page * PAGE + 64); }

static void wait_ns(long ns) {
    struct timespec from, now;
    clock_gettime(CLOCK_MONOTONIC, &from);
    do clock_gettime(CLOCK_MONOTONIC, &now);
    while ((now.tv_sec - from.tv_sec) * 1000000000 + now.tv_nsec - from.tv_nsec < ns);
}

static void *write_all(void *unused) {
    (void)unused;
    for (int round = 1; round <= ROUNDS; round++) {
        while (atomic_load(&begun) != round) sched_yield();
        wait_ns(round % 100 * 3000);
        for (size_t page = 0; page < PAGES; page++) *word(page) = value(round, page);
        atomic_store(&ended, round);
    }
    return NULL;
}

int main(void) {
    uffd = (int)syscall(SYS_userfaultfd, O_CLOEXEC);
    struct uffdio_api api = {.api = UFFD_API};
    if (uffd < 0) return ok(); /* not for this user */
    CHECK(ioctl(uffd, UFFDIO_API, &api) == 0);
    start(serve, NULL);
    start(write_all, NULL);
    for (int round = 1; round <= ROUNDS; round++) {
        area = map_anon(PAGES * PAGE);
        atomic_store(&begun, round);
        struct uffdio_register range = {.range = {(uintptr_t)area, PAGES * PAGE}, .mode = UFFDIO_REGISTER_MODE_MISSING};
        int failed = ioctl(uffd, UFFDIO_REGISTER, &range);
        /* Part of a reserved page, which other threads may write to meanwhile. */
        if (failed && (errno != EINVAL || !has_reserved_pages())) FAIL("UFFDIO_REGISTER");
        while (atomic_load(&ended) != round) sched_yield();
        for (size_t page = 0; page < PAGES; page++)
            if (*word(page) != value(round, page)) FAIL("round %d, page %zu: the write is lost", round, page);
        CHECK(munmap(area, PAGES * PAGE) == 0);
    }
    return ok();
}

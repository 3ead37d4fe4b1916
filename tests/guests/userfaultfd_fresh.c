/* A program with a userfaultfd of its own: what it maps is missing until its handler fills it, whatever the program did with the memory
 * around it, or had there before. Regression: in a tile that a neighbour had touched, and under prefaulting, pages were there already, and
 * the program read zeros. */
#include "guest.h"
#include <linux/userfaultfd.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>

enum { PAGES = 48 };
static int uffd;
static volatile size_t served;

static void *serve(void *unused) {
    static unsigned char page[4096] __attribute__((aligned(4096)));
    struct uffd_msg message;
    (void)unused;
    for (;;) {
        struct pollfd wait = {uffd, POLLIN, 0};
        if (poll(&wait, 1, -1) < 0 || read(uffd, &message, sizeof message) != sizeof message) continue;
        if (message.event != UFFD_EVENT_PAGEFAULT) continue;
        uintptr_t at = message.arg.pagefault.address & ~(PAGE - 1);
        memset(page, (int)(at / PAGE % 200) + 1, sizeof page);
        struct uffdio_copy copy = {.dst = at, .src = (uintptr_t)page, .len = PAGE};
        served++;
        if (ioctl(uffd, UFFDIO_COPY, &copy) != 0 && errno != EEXIST) FAIL("UFFDIO_COPY to %zx", (size_t)at);
    }
    return NULL;
}

static void check_served(unsigned char *p, int by_syscall) {
    struct uffdio_register range = {.range = {(uintptr_t)p, PAGES * PAGE}, .mode = UFFDIO_REGISTER_MODE_MISSING};
    long failed = by_syscall ? syscall(SYS_ioctl, uffd, UFFDIO_REGISTER, &range) : ioctl(uffd, UFFDIO_REGISTER, &range);
    /* Part of a reserved page, which other threads may write to meanwhile. */
    if (failed && errno == EINVAL && has_reserved_pages()) return;
    if (failed) FAIL("UFFDIO_REGISTER");
    size_t already = served;
    for (size_t i = 0; i < PAGES; i++) {
        uintptr_t at = (uintptr_t)p + i * PAGE;
        if (p[i * PAGE + i] != at / PAGE % 200 + 1) FAIL("page %zu holds %u", i, p[i * PAGE + i]);
    }
    if (served != already + PAGES) FAIL("%zu faults came, not %d", served - already, PAGES);
}

/* Zeros over a private mapping of a file are the program's: given back, they would be what the file has. */
static void zeros_over_a_file(void) {
    int file = memfd_create("file", MFD_CLOEXEC);
    unsigned char *p;
    CHECK(file >= 0 && ftruncate(file, PAGES * PAGE) == 0);
    for (size_t i = 0; i < PAGES; i++) CHECK(pwrite(file, "content", 7, (off_t)(i * PAGE)) == 7);
    p = mmap(NULL, PAGES * PAGE, RW, MAP_PRIVATE, file, 0);
    CHECK(p != MAP_FAILED);
    memset(p, 0, PAGES * PAGE);
    struct uffdio_register range = {.range = {(uintptr_t)p, PAGES * PAGE}, .mode = UFFDIO_REGISTER_MODE_MISSING};
    CHECK(ioctl(uffd, UFFDIO_REGISTER, &range) == 0);
    CHECK(all_zero(p, PAGES * PAGE));
    CHECK(munmap(p, PAGES * PAGE) == 0 && close(file) == 0);
}

int main(void) {
    uffd = (int)syscall(SYS_userfaultfd, O_CLOEXEC);
    struct uffdio_api api = {.api = UFFD_API};
    if (uffd < 0) return ok(); /* not for this user */
    CHECK(ioctl(uffd, UFFDIO_API, &api) == 0);
    start(serve, NULL);
    usleep(1000);
    zeros_over_a_file();
    for (int round = 0; round < 6; round++) {
        unsigned char *around[5];
        for (int i = 0; i < 5; i++) {
            around[i] = map_anon(PAGES * PAGE);
            if (i != 2) fill(around[i], PAGES * PAGE, (unsigned)i);
        }
        if (round % 2) { /* what it held is forgotten */
            fill(around[2], PAGES * PAGE, 9);
            CHECK(munmap(around[2], PAGES * PAGE) == 0);
            around[2] = map_anon(PAGES * PAGE);
        }
        check_served(around[2], round % 3 == 0);
        for (int i = 0; i < 5; i++) {
            if (i != 2) CHECK(holds(around[i], PAGES * PAGE, (unsigned)i));
            CHECK(munmap(around[i], PAGES * PAGE) == 0);
        }
        unsigned char *heap = sbrk((PAGES + 2) * PAGE);
        CHECK(heap != (void *)-1);
        check_served((unsigned char *)(((uintptr_t)heap + PAGE) & ~(PAGE - 1)), round % 2);
    }
    return ok();
}

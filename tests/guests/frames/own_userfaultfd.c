/* A program with a userfaultfd of its own: it fills memory that it has mapped when somebody touches it. Nothing was touched
 * before it is registered but what the program touched itself; what is mapped there later is ordinary memory again. */
#include "frames.h"
#include <linux/userfaultfd.h>
#include <poll.h>
#include <sys/ioctl.h>

enum { PAGES = 64 };
static int uffd;
static volatile size_t served;

static unsigned char filler(const void *at) { return (unsigned char)((uintptr_t)at / PAGE * 7 + 1); }

/* Each fault gets a page of its own bytes. */
static void *serve(void *unused) {
    static unsigned char page[4096] __attribute__((aligned(4096)));
    struct uffd_msg message;
    (void)unused;
    memset(page, 1, sizeof page); /* there before a fault could need it */
    for (;;) {
        struct pollfd wait = {uffd, POLLIN, 0};
        if (poll(&wait, 1, -1) < 0 || read(uffd, &message, sizeof message) != sizeof message) continue;
        if (message.event != UFFD_EVENT_PAGEFAULT) continue;
        uintptr_t at = message.arg.pagefault.address & ~(PAGE - 1);
        memset(page, filler((void *)at), sizeof page);
        struct uffdio_copy copy = {.dst = at, .src = (uintptr_t)page, .len = PAGE};
        served++; /* before the thread that waits goes on */
        if (ioctl(uffd, UFFDIO_COPY, &copy) != 0 && errno != EEXIST) FAIL("UFFDIO_COPY to %zx", (size_t)at);
    }
    return NULL;
}

static void enrol(unsigned char *p, size_t pages, int raw) {
    struct uffdio_register range = {.range = {(uintptr_t)p, pages * PAGE}, .mode = UFFDIO_REGISTER_MODE_MISSING};
    long failed = raw ? syscall(SYS_ioctl, uffd, UFFDIO_REGISTER, &range) : ioctl(uffd, UFFDIO_REGISTER, &range);
    if (failed) FAIL("UFFDIO_REGISTER of %zu pages", pages);
    CHECK(range.ioctls & (uint64_t)1 << _UFFDIO_COPY);
}

static void check_served(const unsigned char *p, size_t from, size_t to) {
    for (size_t i = from; i < to; i++)
        if (p[i * PAGE + i] != filler(p + i * PAGE)) FAIL("page %zu holds %u, not %u", i, p[i * PAGE + i], filler(p + i * PAGE));
}

int main(void) {
    uffd = (int)syscall(SYS_userfaultfd, O_CLOEXEC);
    struct uffdio_api api = {.api = UFFD_API};
    pthread_t thread;
    if (uffd < 0) return ok(); /* not for this user */
    if (getenv("FRAMES_PREFAULT")) return ok(); /* nothing is missing, and nobody is asked */
    CHECK(ioctl(uffd, UFFDIO_API, &api) == 0);
    CHECK(pthread_create(&thread, NULL, serve, NULL) == 0);
    usleep(1000);
    for (int round = 0; round < 8; round++) {
        /* Touched in order up to the block that is registered: what comes ahead of the touch reaches into it. */
        unsigned char *before = map_anon(3 * PAGES * PAGE), *p = before + PAGES * PAGE;
        write_tags(before, PAGES, 5);
        size_t already = served;
        enrol(p, PAGES, round % 2);
        check_served(p, 0, PAGES);
        if (served != already + PAGES) FAIL("%zu faults came, not %d", served - already, PAGES);
        check_tags(before, PAGES, 5);
        CHECK(madvise(p, 8 * PAGE, MADV_DONTNEED) == 0);
        check_served(p, 0, 8);
        write_tags(p + PAGES * PAGE, PAGES, 6); /* its neighbour is as before */
        check_tags(p + PAGES * PAGE, PAGES, 6);
        CHECK_PLACED(p + PAGES * PAGE, PAGES);
        if (round % 4 < 2) {
            /* What the program wrote before stays, zeros that it did not write to do not come before its handler. */
            unsigned char *q = map_anon(PAGES * PAGE);
            for (size_t i = 0; i < PAGES; i += 2) q[i * PAGE] = 77;
            enrol(q, PAGES, 0);
            for (size_t i = 0; i < PAGES; i += 2) CHECK(q[i * PAGE] == 77);
            check_served(q, 1, 2);
            CHECK(munmap(q, PAGES * PAGE) == 0);
        }
        already = served;
        if (round % 2) {
            CHECK(mmap(p, PAGES * PAGE, RW, ANON | MAP_FIXED, -1, 0) == p);
        } else {
            CHECK(munmap(p, PAGES * PAGE) == 0);
            CHECK(mmap(p, PAGES * PAGE, RW, ANON | MAP_FIXED_NOREPLACE, -1, 0) == p);
        }
        CHECK(all_zero(p, PAGES * PAGE));
        write_tags(p, PAGES, 9);
        check_tags(p, PAGES, 9);
        CHECK_PLACED(p, PAGES);
        CHECK(served == already);
        CHECK(munmap(before, 3 * PAGES * PAGE) == 0);
    }
    /* A range that is not mapped, and arguments that are no memory: the kernel's answers. */
    struct uffdio_register none = {.range = {(uintptr_t)map_anon(PAGE), PAGE}, .mode = UFFDIO_REGISTER_MODE_MISSING};
    CHECK(munmap((void *)none.range.start, PAGE) == 0);
    CHECK(ioctl(uffd, UFFDIO_REGISTER, &none) == -1);
    CHECK_ERRNO(ioctl(uffd, UFFDIO_REGISTER, (void *)16), -1, EFAULT);
    CHECK_ERRNO(ioctl(-1, UFFDIO_REGISTER, &none), -1, EBADF);
    return ok();
}

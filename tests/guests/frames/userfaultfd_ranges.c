/* Ranges that a program registers with its own userfaultfd and that are not one governed mapping: one with a file in it, which
 * the kernel refuses, one that is registered with another userfaultfd, one that grows, and one with a hole. Memory whose registration
 * was refused is ordinary memory, and is placed. Regression: the first touch of a missing page never ended. */
#include "frames.h"
#include <linux/userfaultfd.h>
#include <poll.h>
#include <sys/ioctl.h>

enum { PAGES = 64 };

static int new_uffd(void) {
    int fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC);
    struct uffdio_api api = {.api = UFFD_API};
    if (fd >= 0) CHECK(ioctl(fd, UFFDIO_API, &api) == 0);
    return fd;
}

static int enrol(int fd, unsigned char *p, size_t pages) {
    struct uffdio_register range = {.range = {(uintptr_t)p, pages * PAGE}, .mode = UFFDIO_REGISTER_MODE_MISSING};
    return ioctl(fd, UFFDIO_REGISTER, &range) ? errno : 0;
}

/* Serves one fault after the other with a page of sevens. */
static void *serve(void *argument) {
    int fd = *(int *)argument;
    static unsigned char page[4096] __attribute__((aligned(4096)));
    memset(page, 7, sizeof page);
    for (;;) {
        struct uffd_msg message;
        if (read(fd, &message, sizeof message) != sizeof message || message.event != UFFD_EVENT_PAGEFAULT) continue;
        struct uffdio_copy copy = {.dst = message.arg.pagefault.address & ~(PAGE - 1), .src = (uintptr_t)page, .len = PAGE};
        if (ioctl(fd, UFFDIO_COPY, &copy) != 0 && errno != EEXIST) FAIL("UFFDIO_COPY");
    }
    return NULL;
}

static int is_served(const unsigned char *p) { return *(const volatile unsigned char *)p == 7; }

/* Memory that nobody registered (any more): zero at first, then what was written; placed. */
static void check_ordinary(unsigned char *p, size_t pages, uint64_t tag) {
    CHECK(all_zero(p, pages * PAGE));
    write_tags(p, pages, tag);
    check_tags(p, pages, tag);
    CHECK_PLACED(p, pages);
}

int main(void) {
    int own = new_uffd(), other = new_uffd();
    pthread_t thread;
    if (own < 0 || other < 0) return ok(); /* not for this user */
    if (getenv("FRAMES_PREFAULT")) return ok(); /* nothing is missing, and nobody is asked */
    CHECK(pthread_create(&thread, NULL, serve, &own) == 0);
    alarm(20);
    for (int round = 0; round < 4; round++) {
        /* A private mapping of a file in the middle. */
        unsigned char *p = map_anon(PAGES * PAGE);
        int file = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
        CHECK(file >= 0 && mmap(p + 32 * PAGE, PAGE, RW, MAP_PRIVATE | MAP_FIXED, file, 0) == p + 32 * PAGE);
        write_tags(p, 2, 1);
        CHECK(enrol(own, p, PAGES) == EINVAL);
        check_tags(p, 2, 1);
        check_ordinary(p + 2 * PAGE, 30, 11);
        check_ordinary(p + 33 * PAGE, 31, 12);
        CHECK(close(file) == 0 && munmap(p, PAGES * PAGE) == 0);

        /* A range that grows, page by page and by half. */
        p = map_anon(4 * PAGES * PAGE);
        for (size_t pages = 1; pages <= 8; pages++) CHECK(enrol(own, p, pages) == 0);
        CHECK(enrol(own, p, 2 * PAGES) == 0);
        CHECK(enrol(own, p, 2 * PAGES) == 0);
        CHECK(is_served(p) && is_served(p + 7 * PAGE) && is_served(p + 100 * PAGE));
        /* Refused, because a part belongs to another userfaultfd: what belonged to this one still does. */
        CHECK(enrol(other, p + 3 * PAGES * PAGE, PAGES) == 0);
        CHECK(enrol(own, p, 4 * PAGES) == EBUSY);
        CHECK(is_served(p + 20 * PAGE) && is_served(p + (2 * PAGES - 1) * PAGE));
        check_ordinary(p + 2 * PAGES * PAGE, PAGES, 13);
        CHECK(enrol(other, p + 3 * PAGES * PAGE, PAGES) == 0);
        struct uffdio_zeropage zeros = {.range = {(uintptr_t)p + 3 * PAGES * PAGE, PAGE}};
        CHECK(ioctl(other, UFFDIO_ZEROPAGE, &zeros) == 0 && p[3 * PAGES * PAGE] == 0);
        CHECK(munmap(p, 4 * PAGES * PAGE) == 0);

        /* A hole, and memory of another protection, are no obstacles to the kernel. */
        p = map_anon(PAGES * PAGE);
        CHECK(munmap(p + 20 * PAGE, 4 * PAGE) == 0 && mprotect(p + 40 * PAGE, 2 * PAGE, PROT_READ) == 0);
        CHECK(enrol(own, p, PAGES) == 0);
        for (size_t i = 0; i < PAGES; i++)
            if (i < 20 || i >= 24) CHECK(is_served(p + i * PAGE));
        CHECK(munmap(p, PAGES * PAGE) == 0);
    }
    return ok();
}

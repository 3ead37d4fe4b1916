/* The kernel populates memory within a system call (mremap that grows locked memory, MADV_POPULATE), and waits there for the program's own
 * userfaultfd, whose thread maps memory itself. Regression: it waited for the library's lock, which the populating thread held. */
#include "guest.h"
#include <linux/userfaultfd.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_READ 22
#define MADV_POPULATE_WRITE 23
#endif

enum { BYTES = 64 * 4096, MORE = 32 * 4096 };
static int uffd;
static volatile size_t served;

static void *serve(void *unused) {
    struct uffd_msg message;
    (void)unused;
    while (read(uffd, &message, sizeof message) == sizeof message) {
        unsigned char *page = map_anon(PAGE);
        memset(page, 0x5a, PAGE);
        struct uffdio_copy copy = {.dst = message.arg.pagefault.address & ~(PAGE - 1), .src = (uintptr_t)page, .len = PAGE};
        served++;
        if (ioctl(uffd, UFFDIO_COPY, &copy) != 0 && errno != EEXIST) FAIL("UFFDIO_COPY");
        CHECK(munmap(page, PAGE) == 0);
    }
    return NULL;
}

/* Registered memory before free addresses; NULL: part of a reserved page cannot be registered. */
static unsigned char *registered_block(unsigned char *at) {
    unsigned char *p = mmap(at, 2 * BYTES, RW, ANON, -1, 0);
    CHECK(p != MAP_FAILED && (!at || p == at));
    struct uffdio_register range = {.range = {(uintptr_t)p, BYTES}, .mode = UFFDIO_REGISTER_MODE_MISSING};
    if (ioctl(uffd, UFFDIO_REGISTER, &range) != 0) {
        CHECK(errno == EINVAL && has_reserved_pages());
        CHECK(munmap(p, 2 * BYTES) == 0);
        return NULL;
    }
    return p;
}

static int is_served(const unsigned char *p, size_t bytes) { return p[0] == 0x5a && memcmp(p, p + 1, bytes - 1) == 0; }

static void locked_memory_grows(unsigned char *at, int flags) {
    unsigned char *p = registered_block(at);
    if (!p) return;
    size_t before = served;
    if (mlock(p, BYTES) == 0) {
        CHECK(is_served(p, BYTES) && served == before + BYTES / PAGE && munmap(p + BYTES, BYTES) == 0);
        unsigned char *grown = mremap(p, BYTES, BYTES + MORE, flags);
        if (grown == MAP_FAILED) { /* the limit is reached, or another mapping has taken the place */
            CHECK(errno == EAGAIN || errno == ENOMEM);
        } else {
            CHECK(is_served(grown, BYTES));
            CHECK(grown == p ? is_served(p + BYTES, MORE) && served == before + (BYTES + MORE) / PAGE : all_zero(grown + BYTES, MORE));
            CHECK(munmap(grown, BYTES + MORE) == 0);
            return;
        }
    }
    CHECK(munmap(p, 2 * BYTES) == 0);
}

static void populated_beyond_its_end(unsigned char *at, int advice) {
    unsigned char *p = registered_block(at);
    if (!p) return;
    size_t before = served;
    CHECK(munmap(p + BYTES, BYTES) == 0);
    if (madvise(p, 0, advice) == 0) { /* Linux 5.14 */
        CHECK_ERRNO(madvise(p, BYTES + MORE, advice), -1, ENOMEM);
        CHECK(served == before + BYTES / PAGE && is_served(p, BYTES));
    }
    CHECK(munmap(p, BYTES) == 0);
}

int main(void) {
    unsigned char *places[] = {NULL, (void *)0x520000000000};
    struct uffdio_api api = {.api = UFFD_API};
    alarm(50);
    uffd = (int)syscall(SYS_userfaultfd, O_CLOEXEC);
    if (uffd < 0) return ok(); /* not for this user */
    CHECK(ioctl(uffd, UFFDIO_API, &api) == 0);
    start(serve, NULL);
    for (int i = 0; i < 2; i++) {
        locked_memory_grows(places[i], 0);
        locked_memory_grows(places[i], MREMAP_MAYMOVE);
        populated_beyond_its_end(places[i], MADV_POPULATE_READ);
        populated_beyond_its_end(places[i], MADV_POPULATE_WRITE);
    }
    return ok();
}

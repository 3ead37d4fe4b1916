/* A program that watches its own memory calls with a userfaultfd: munmap, mremap and MADV_DONTNEED wait until its other thread has read of
 * them, and that thread maps and unmaps memory itself before it goes on. Regression: the two waited for each other in the library. */
#include "guest.h"
#include <linux/userfaultfd.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>

static int uffd;
static volatile int seen[256];

static void *watch(void *unused) {
    static unsigned char page[4096] __attribute__((aligned(4096)));
    struct uffd_msg message;
    (void)unused;
    memset(page, 7, sizeof page);
    while (read(uffd, &message, sizeof message) == sizeof message) {
        unsigned char *notes = map_anon(300000);
        memset(notes, 1, 300000);
        CHECK(munmap(notes, 300000) == 0);
        free(memset(malloc(400000), 1, 400000));
        seen[message.event]++;
        if (message.event != UFFD_EVENT_PAGEFAULT) continue;
        struct uffdio_copy copy = {.dst = message.arg.pagefault.address & ~(PAGE - 1), .src = (uintptr_t)page, .len = PAGE};
        ioctl(uffd, UFFDIO_COPY, &copy);
    }
    return NULL;
}

static void enrol(unsigned char *p, size_t bytes) {
    struct uffdio_register range = {.range = {(uintptr_t)p, bytes}, .mode = UFFDIO_REGISTER_MODE_MISSING};
    if (ioctl(uffd, UFFDIO_REGISTER, &range) != 0) FAIL("UFFDIO_REGISTER");
}

int main(void) {
    uffd = (int)syscall(SYS_userfaultfd, O_CLOEXEC);
    uint64_t events = UFFD_FEATURE_EVENT_REMAP | UFFD_FEATURE_EVENT_REMOVE | UFFD_FEATURE_EVENT_UNMAP;
    struct uffdio_api api = {.api = UFFD_API, .features = events};
    if (uffd < 0 || ioctl(uffd, UFFDIO_API, &api) != 0) return ok(); /* not for this user */
    start(watch, NULL);
    size_t bytes = 64 * PAGE;
    unsigned char *p = map_anon(bytes), *room = mmap(NULL, bytes, PROT_NONE, ANON, -1, 0);
    CHECK(room != MAP_FAILED);
    enrol(p, bytes);
    for (size_t i = 0; i < bytes; i += PAGE) CHECK(p[i] == 7);
    CHECK(madvise(p, 4 * PAGE, MADV_DONTNEED) == 0);
    CHECK(p[0] == 7);
    CHECK(mremap(p, bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, room) == room);
    enrol(room, bytes);
    CHECK(room[9 * PAGE] == 7);
    CHECK(mmap(room, 2 * PAGE, RW, ANON | MAP_FIXED, -1, 0) == room);
    CHECK(munmap(room + 8 * PAGE, PAGE) == 0);
    CHECK(munmap(room, bytes) == 0);
    CHECK(seen[UFFD_EVENT_REMAP] && seen[UFFD_EVENT_REMOVE] && seen[UFFD_EVENT_UNMAP]);
    churn(3, 500, 200000);
    return ok();
}

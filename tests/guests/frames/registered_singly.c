/* A program registers a block page by page with its own userfaultfd, more pages than the library keeps ranges. */
#include "frames.h"
#include <linux/userfaultfd.h>
#include <sys/ioctl.h>

enum { PAGES = 20000 };

int main(void) {
    int uffd = (int)syscall(SYS_userfaultfd, O_CLOEXEC);
    struct uffdio_api api = {.api = UFFD_API};
    if (uffd < 0) return ok(); /* not for this user */
    CHECK(ioctl(uffd, UFFDIO_API, &api) == 0);
    unsigned char *p = map_anon(PAGES * PAGE);
    for (size_t i = 0; i < PAGES; i++) {
        struct uffdio_register range = {.range = {(uintptr_t)(p + i * PAGE), PAGE}, .mode = UFFDIO_REGISTER_MODE_MISSING};
        if (ioctl(uffd, UFFDIO_REGISTER, &range) != 0) FAIL("UFFDIO_REGISTER of page %zu", i);
    }
    CHECK(munmap(p, PAGES * PAGE) == 0);
    unsigned char *q = map_anon(64 * PAGE); /* ordinary memory again */
    write_tags(q, 64, 4);
    check_tags(q, 64, 4);
    CHECK_PLACED(q, 64);
    return ok();
}

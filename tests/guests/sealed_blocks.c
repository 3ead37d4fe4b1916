/* A sealed block can neither go, nor move, nor change, nor grow: not even into memory that lies ready behind it. Regression: mremap
 * of a block that had room behind it asked nobody. */
#include "guest.h"
#include <sys/syscall.h>

#ifndef SYS_mseal
#define SYS_mseal 462
#endif

static void check_sealed(unsigned char *p, size_t bytes) {
    CHECK_ERRNO(mremap(p, bytes, bytes, 0), MAP_FAILED, EPERM);
    CHECK_ERRNO(mremap(p, bytes, bytes + 4 * PAGE, 0), MAP_FAILED, EPERM);
    CHECK_ERRNO(mremap(p, bytes, bytes + 64 * PAGE, MREMAP_MAYMOVE), MAP_FAILED, EPERM);
    CHECK_ERRNO(mremap(p, bytes, bytes - PAGE, 0), MAP_FAILED, EPERM);
    CHECK_ERRNO(munmap(p, bytes), -1, EPERM);
    CHECK_ERRNO(mprotect(p, PAGE, PROT_READ), -1, EPERM);
    CHECK_ERRNO(mmap(p, PAGE, RW, ANON | MAP_FIXED, -1, 0), MAP_FAILED, EPERM);
    CHECK(holds(p, bytes, 3));
}

int main(void) {
    size_t sizes[] = {4 * PAGE, 64 * PAGE, 3 * MIB};
    for (unsigned i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        unsigned char *p = map_anon(sizes[i]);
        fill(p, sizes[i], 3);
        /* Not before Linux 6.10, and not for parts of reserved pages. */
        if (syscall(SYS_mseal, p, sizes[i], 0) != 0) {
            CHECK(errno == ENOSYS || has_reserved_pages());
            continue;
        }
        check_sealed(p, sizes[i]);
    }
    return ok();
}

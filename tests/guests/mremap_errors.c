/* mremap refuses what the kernel refuses, with the same errno, and duplicates shared mappings with old size 0. */
#include "guest.h"

int main(void) {
    unsigned char *p = map_anon(MIB);
    fill(p, MIB, 1);
    CHECK_ERRNO(mremap(p + 1, PAGE, 2 * PAGE, MREMAP_MAYMOVE), MAP_FAILED, EINVAL);
    CHECK_ERRNO(mremap(p, PAGE, 0, MREMAP_MAYMOVE), MAP_FAILED, EINVAL);
    CHECK_ERRNO(mremap(p, PAGE, 2 * PAGE, 0x40000000), MAP_FAILED, EINVAL);
    unsigned char *hole = map_anon(MIB);
    CHECK(munmap(hole, MIB) == 0);
    CHECK_ERRNO(mremap(hole, PAGE, 2 * PAGE, MREMAP_MAYMOVE), MAP_FAILED, EFAULT);
    CHECK_ERRNO(mremap(hole, 0, 2 * PAGE, MREMAP_MAYMOVE), MAP_FAILED, EFAULT);
    CHECK_ERRNO(mremap(hole, 0, 2 * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, p), MAP_FAILED, EFAULT);
    CHECK_ERRNO(mremap(hole, 0, 2 * PAGE, 0), MAP_FAILED, EFAULT);
    CHECK_ERRNO(mremap(p, 0, 2 * PAGE, 0), MAP_FAILED, EINVAL);
    CHECK(holds_from(p + 2 * PAGE, MIB - 2 * PAGE, 1, 2 * PAGE)); /* kernels may unmap the target first */

    unsigned char *shared = mmap(NULL, MIB, RW, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(shared != MAP_FAILED);
    unsigned char *alias = mremap(shared, 0, MIB, MREMAP_MAYMOVE);
    CHECK(alias != MAP_FAILED && alias != shared);
    fill(shared, MIB, 3);
    CHECK(holds(alias, MIB, 3));
    return ok();
}

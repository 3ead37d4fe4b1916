/* errno: untouched by success, exact on failure, for every call that the library stands in for. */
#include "guest.h"

int main(void) {
    unsigned char *p, *q;
#define QUIET(call)                                                                                        \
    do {                                                                                                   \
        errno = 4711;                                                                                      \
        if (!(call)) FAIL("%s", #call);                                                                    \
        if (errno != 4711) FAIL("%s changed errno", #call);                                                \
    } while (0)
    for (int i = 0; i < 3; i++) {
        QUIET((p = mmap(NULL, 5 * MIB, RW, ANON, -1, 0)) != MAP_FAILED);
        QUIET(memset(p, 1, 5 * MIB));
        QUIET(mprotect(p, MIB, PROT_READ) == 0);
        QUIET(mprotect(p, MIB, RW) == 0);
        QUIET(madvise(p, MIB, MADV_DONTNEED) == 0);
        QUIET(posix_madvise(p, MIB, POSIX_MADV_NORMAL) == 0);
        QUIET((q = mremap(p, 5 * MIB, 9 * MIB, MREMAP_MAYMOVE)) != MAP_FAILED);
        QUIET((q = mremap(q, 9 * MIB, 3 * MIB, MREMAP_MAYMOVE)) != MAP_FAILED);
        QUIET(munmap(q + MIB, MIB) == 0);
        QUIET(munmap(q, 3 * MIB) == 0);
        QUIET((p = sbrk(300 * KIB)) != (void *)-1);
        QUIET(sbrk(-(intptr_t)(300 * KIB)) != (void *)-1);
        QUIET((p = malloc(100)) != NULL);
        free(p);
        QUIET((p = malloc(3 * MIB)) != NULL);
        free(p);
    }
    CHECK_ERRNO(mmap(NULL, 0, RW, ANON, -1, 0), MAP_FAILED, EINVAL);
    CHECK_ERRNO(mmap(NULL, (size_t)-1 & ~(PAGE - 1), RW, ANON, -1, 0), MAP_FAILED, ENOMEM);
    CHECK_ERRNO(mmap(NULL, (size_t)1 << 62, RW, ANON, -1, 0), MAP_FAILED, ENOMEM);
    CHECK_ERRNO(mmap(NULL, PAGE, RW, MAP_ANONYMOUS, -1, 0), MAP_FAILED, EINVAL);
    CHECK_ERRNO(mmap((void *)(uintptr_t)-4096, PAGE, RW, ANON | MAP_FIXED, -1, 0), MAP_FAILED, ENOMEM);
    CHECK_ERRNO(munmap((void *)1, PAGE), -1, EINVAL);
    CHECK_ERRNO(munmap((void *)PAGE, 0), -1, EINVAL);
    CHECK_ERRNO(munmap((void *)0, (size_t)1 << 62), -1, EINVAL);
    CHECK_ERRNO(mprotect((void *)PAGE, PAGE, 0x10000), -1, EINVAL);
    CHECK_ERRNO(madvise((void *)((uintptr_t)main & ~(PAGE - 1)), PAGE, -7), -1, EINVAL);
    errno = 4711;
    CHECK(posix_madvise((void *)1, PAGE, POSIX_MADV_NORMAL) == EINVAL && errno == 4711);
    CHECK_ERRNO(malloc((size_t)1 << 62), NULL, ENOMEM);
    return ok();
}

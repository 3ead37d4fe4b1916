/* A lock beyond the limit, or over memory without access, brings nothing into memory; nor does populating memory that
 * cannot be written to. Regression: where frames are placed, all that the limit refused was placed first, and page by
 * page it was tried for memory without access (minutes for some gigabytes). */
#include "guest.h"
#include <sys/resource.h>

static size_t resident(unsigned char *p, size_t bytes) {
    static unsigned char there[128 * MIB / PAGE];
    size_t count = 0;
    CHECK(mincore(p, bytes, there) == 0);
    for (size_t i = 0; i < bytes / PAGE; i++) count += there[i] & 1;
    return count;
}

int main(void) {
    const struct rlimit limit = {MIB, MIB};
    CHECK(setrlimit(RLIMIT_MEMLOCK, &limit) == 0);
    if (geteuid() == 0) CHECK(setresuid(65534, 65534, 65534) == 0);
    unsigned char *p = map_anon(128 * MIB);
    size_t before = resident(p, 128 * MIB); /* a policy may have populated it */
    CHECK_ERRNO(mlock(p, 128 * MIB), -1, ENOMEM);
    CHECK(resident(p, 128 * MIB) == before);

    unsigned char *shut = mmap(NULL, 8 * GIB, PROT_NONE, ANON | MAP_NORESERVE, -1, 0);
    CHECK(shut != MAP_FAILED);
    CHECK_ERRNO(mlock(shut, 8 * GIB), -1, ENOMEM);
#ifdef MADV_POPULATE_WRITE
    int refused = madvise(shut, 8 * GIB, MADV_POPULATE_WRITE);
    CHECK(refused == -1 && (errno == EFAULT || errno == EINVAL || errno == ENOMEM));
    CHECK(mprotect(shut, 16 * MIB, RW) == 0 && munmap(shut + 16 * MIB, 8 * GIB - 32 * MIB) == 0);
    CHECK(madvise(shut, 8 * GIB, MADV_POPULATE_WRITE) == -1);
    if (errno != EINVAL) CHECK(errno == ENOMEM && resident(shut, 16 * MIB) == 16 * MIB / PAGE);
#endif
    return ok();
}

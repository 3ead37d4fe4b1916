/* mincore, msync, mlock and MAP_POPULATE tell the truth about governed mappings. */
#include "guest.h"

int main(void) {
    enum { PAGES = 64 };
    unsigned char state[PAGES];
    unsigned char *p = map_anon(PAGES * PAGE);
    memset(p, 1, PAGES * PAGE);
    CHECK(mincore(p, PAGES * PAGE, state) == 0);
    for (int i = 0; i < PAGES; i++) CHECK(state[i] & 1);
    CHECK(munmap(p + 8 * PAGE, PAGE) == 0);
    if (!has_reserved_pages()) {
        CHECK_ERRNO(mincore(p, PAGES * PAGE, state), -1, ENOMEM);
        CHECK_ERRNO(msync(p, PAGES * PAGE, MS_SYNC), -1, ENOMEM);
    }
    unsigned char *q = mmap(NULL, PAGES * PAGE, RW, ANON | MAP_POPULATE, -1, 0);
    CHECK(q != MAP_FAILED && mincore(q, PAGES * PAGE, state) == 0);
    for (int i = 0; i < PAGES; i++) CHECK(state[i] & 1);
    CHECK(all_zero(q, PAGES * PAGE));
    CHECK(mlock(q, 4 * PAGE) == 0 && munlock(q, 4 * PAGE) == 0);
    CHECK(msync(q, PAGES * PAGE, MS_ASYNC) == 0);
    int fd = memfd_create("guest", 0);
    CHECK(fd >= 0 && ftruncate(fd, PAGE) == 0);
    unsigned char *f = mmap(NULL, PAGE, RW, MAP_SHARED, fd, 0);
    CHECK(f != MAP_FAILED);
    f[9] = 9;
    CHECK(msync(f, PAGE, MS_SYNC) == 0);
    unsigned char byte;
    CHECK(pread(fd, &byte, 1, 9) == 1 && byte == 9);
    return ok();
}

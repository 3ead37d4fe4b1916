/* Pages that come all at once: mlock, mlockall, MAP_POPULATE, MADV_POPULATE_*; and locked ones that come on demand. What is asked
 * for from here to the end is refused at the first hole. Regression: that took minutes. */
#include "frames.h"
#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22
#define MADV_POPULATE_WRITE 23
#endif

static void all_there(unsigned char *p, size_t pages) {
    if (resident_pages(p, pages) != pages) FAIL("%zu of %zu pages resident", resident_pages(p, pages), pages);
    CHECK(all_zero(p, pages * PAGE));
    write_tags(p, pages, 3);
    check_tags(p, pages, 3);
}

int main(void) {
    unsigned char *p = map_anon(300 * PAGE);
    p[7 * PAGE] = 0;
    if (mlock(p + PAGE, 200 * PAGE) != 0) { /* without the right to lock there is nothing to check */
        CHECK(errno == ENOMEM || errno == EPERM);
        return ok();
    }
    all_there(p + PAGE, 200);
    CHECK_PLACED(p + PAGE, 200);
    write_tags(p, 300, 4);
    CHECK_PLACED(p, 300);
    CHECK(munlock(p, 300 * PAGE) == 0 && madvise(p, 300 * PAGE, MADV_DONTNEED) == 0 && all_zero(p, 300 * PAGE));
    CHECK_PLACED(p, 300);
    CHECK(munmap(p, 300 * PAGE) == 0);

    p = map_anon(300 * PAGE);
    CHECK(madvise(p, 100 * PAGE, MADV_POPULATE_WRITE) == 0);
    all_there(p, 100);
    CHECK_PLACED(p, 100);
    CHECK(madvise(p + 100 * PAGE, 100 * PAGE, MADV_POPULATE_READ) == 0);
    all_there(p + 100 * PAGE, 100);
    CHECK(munmap(p, 300 * PAGE) == 0);

    p = mmap(NULL, 300 * PAGE, RW, ANON | MAP_POPULATE, -1, 0);
    CHECK(p != MAP_FAILED);
    all_there(p, 300);
    CHECK_PLACED(p, 300);
    CHECK(munmap(p, 300 * PAGE) == 0);

    p = mmap(NULL, 64 * PAGE, RW, ANON | MAP_LOCKED, -1, 0);
    CHECK(p != MAP_FAILED);
    all_there(p, 64);
    CHECK(munmap(p, 64 * PAGE) == 0);

    /* Locked before they come: a move into such a range is refused by the kernel. Nothing may hang, zeros are zeros. */
    p = map_anon(64 * PAGE);
    CHECK(mlock2(p, 64 * PAGE, MLOCK_ONFAULT) == 0);
    CHECK(resident_pages(p, 64) == 0 || getenv("FRAMES_PREFAULT"));
    write_tags(p, 64, 5);
    check_tags(p, 64, 5);
    CHECK(munmap(p, 64 * PAGE) == 0);

    static unsigned char data[4096 * 16] __attribute__((aligned(4096)));
    p = map_anon(64 * PAGE);
    alarm(3);
    CHECK(mlock(p, (size_t)1 << 44) == -1 && (errno == ENOMEM || errno == EPERM));
    CHECK_ERRNO(madvise(data, (size_t)1 << 44, MADV_POPULATE_WRITE), -1, ENOMEM);
    alarm(0);
    CHECK(munlock(p, 64 * PAGE) == 0 && munmap(p, 64 * PAGE) == 0);

    CHECK(mlockall(MCL_CURRENT) == 0);
    churn(1, 300, 300 * KIB);
    CHECK(munlockall() == 0);
    CHECK(mlockall(MCL_FUTURE) == 0);
    p = map_anon(64 * PAGE);
    all_there(p, 64);
    churn(2, 300, 300 * KIB);
    pid_t pid = fork(); /* locks are not inherited */
    if (pid == 0) {
        check_tags(p, 64, 3);
        churn(3, 100, 300 * KIB);
        _exit(0);
    }
    CHECK(wait_for(pid) == 0 && munlockall() == 0 && munmap(p, 64 * PAGE) == 0);
    p = map_anon(64 * PAGE);
    write_tags(p, 64, 6);
    CHECK_PLACED(p, 64);
    return ok();
}

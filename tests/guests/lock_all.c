/* mlockall(MCL_FUTURE): everything mapped later is resident at once, and the limits of it are heard. */
#include "guest.h"

int main(void) {
    if (mlockall(MCL_FUTURE) != 0) { /* RLIMIT_MEMLOCK too small: nothing to check here */
        CHECK(errno == ENOMEM || errno == EPERM);
        return ok();
    }
    unsigned char *p = mmap(NULL, 256 * KIB, RW, ANON, -1, 0);
    if (p != MAP_FAILED) {
        unsigned char state[64];
        CHECK(mincore(p, 256 * KIB, state) == 0);
        for (int i = 0; i < 64; i++) CHECK(state[i] & 1);
        CHECK(all_zero(p, 256 * KIB));
        CHECK(munmap(p, 256 * KIB) == 0);
    } else {
        CHECK(errno == EAGAIN);
    }
    CHECK(munlockall() == 0);
    churn(1, 300, 300 * KIB);
    return ok();
}

/* A program at its limit on locked memory: what one thread may lock stays allowed, whatever the library locks for a moment to place
 * pages of another's. Regression: mremap said EAGAIN to a block that was within the limit. */
#include "../lock_limit.h"
#include <sys/resource.h>

/* Main grows a block from 4 to 8 pages and locks 4 more, the other thread locks 4: never beyond. */
enum { LIMIT = 16 };
static volatile int finished;

static void *touch_locked(void *argument) {
    (void)argument;
    while (!finished) {
        unsigned char *p = map_anon(4 * PAGE);
        CHECK(mlock2(p, 4 * PAGE, MLOCK_ONFAULT) == 0);
        for (size_t page = 0; page < 4; page++) p[page * PAGE] = 1;
        CHECK(munmap(p, 4 * PAGE) == 0);
    }
    return NULL;
}

int main(int argc, char **argv) {
    int rounds = argc > 1 ? atoi(argv[1]) : 3000;
    obey_lock_limit();
    struct rlimit limit = {LIMIT * PAGE, LIMIT * PAGE};
    CHECK(setrlimit(RLIMIT_MEMLOCK, &limit) == 0);
    pthread_t other = start(touch_locked, NULL);
    unsigned char *beside = map_anon(4 * PAGE);
    for (int round = 0; round < rounds; round++) {
        unsigned char *p = map_anon(4 * PAGE);
        CHECK(mlock2(p, 4 * PAGE, MLOCK_ONFAULT) == 0);
        p = mremap(p, 4 * PAGE, 8 * PAGE, MREMAP_MAYMOVE);
        CHECK(p != MAP_FAILED);
        CHECK(mlock2(beside, 4 * PAGE, MLOCK_ONFAULT) == 0);
        CHECK(munlock(beside, 4 * PAGE) == 0 && munmap(p, 8 * PAGE) == 0);
    }
    finished = 1;
    CHECK(pthread_join(other, NULL) == 0);
    return ok();
}

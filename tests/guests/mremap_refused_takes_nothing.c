/* A growth in place that is refused because something lies behind the block takes no address space, not even for a moment: another
 * thread's mmap within the limit always succeeds. Regression: the library mapped as much as the growth to learn whether the process
 * lacked memory, and most of the other thread's calls failed. */
#include "guest.h"
#include <sys/resource.h>
#include <time.h>

#define BLOCK (64 * KIB)
#define MUCH (700 * MIB)

static unsigned char *block;
static volatile int stops;

static void *grows(void *argument) {
    while (!stops) CHECK_ERRNO(mremap(block, BLOCK, MUCH, 0), MAP_FAILED, ENOMEM);
    return argument;
}

static double seconds(void) {
    struct timespec now;
    CHECK(clock_gettime(CLOCK_MONOTONIC, &now) == 0);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

/* `behind`: bytes between the block and what lies behind it. */
static void beside(size_t behind) {
    block = mmap(NULL, GIB, PROT_NONE, ANON | MAP_NORESERVE, -1, 0);
    CHECK(block != MAP_FAILED && munmap(block, GIB) == 0);
    CHECK(mmap(block, BLOCK, RW, ANON | MAP_FIXED_NOREPLACE, -1, 0) == block);
    unsigned char *wall = block + BLOCK + behind;
    CHECK(mmap(wall, PAGE, PROT_READ, ANON | MAP_FIXED_NOREPLACE, -1, 0) == wall);
    *block = 1;
    stops = 0;
    pthread_t thread = start(grows, NULL);
    usleep(5000);
    struct rlimit limit;
    CHECK(getrlimit(RLIMIT_AS, &limit) == 0);
    struct rlimit lower = {(size_t)status_kib("VmSize:") * KIB + GIB + 64 * MIB, limit.rlim_max};
    CHECK(setrlimit(RLIMIT_AS, &lower) == 0);
    int refused = 0, calls = 0;
    for (double end = seconds() + 0.3; seconds() < end; calls++) {
        unsigned char *p = mmap(NULL, MUCH, PROT_NONE, ANON | MAP_NORESERVE, -1, 0);
        if (p == MAP_FAILED) refused++;
        else CHECK(munmap(p, MUCH) == 0);
    }
    stops = 1;
    CHECK(pthread_join(thread, NULL) == 0 && setrlimit(RLIMIT_AS, &limit) == 0);
    if (refused) FAIL("%d of %d calls refused beside a growth", refused, calls);
    CHECK(munmap(block, BLOCK) == 0 && munmap(wall, PAGE) == 0);
}

int main(void) {
    beside(0);
    beside(300 * MIB);
    return ok();
}

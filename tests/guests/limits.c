/* RLIMIT_AS and RLIMIT_DATA still bind: ENOMEM where the limit says so, and life goes on after it. */
#include "guest.h"
#include <sys/resource.h>

static void run(int resource, size_t extra) {
    long total;
    FILE *f = fopen("/proc/self/statm", "r");
    CHECK(f && fscanf(f, "%ld", &total) == 1);
    fclose(f);
    size_t limit = (resource == RLIMIT_AS ? (size_t)total * PAGE : 64 * MIB) + extra;
    struct rlimit to = {limit, limit};
    CHECK(setrlimit(resource, &to) == 0);
    CHECK_ERRNO(mmap(NULL, 4 * GIB, RW, ANON, -1, 0), MAP_FAILED, ENOMEM);
    CHECK_ERRNO(sbrk(2 * GIB), (void *)-1, ENOMEM);
    CHECK_ERRNO(malloc(4 * GIB), NULL, ENOMEM);
    churn(1, 500, 100 * KIB);
    unsigned char *p = map_anon(20 * MIB);
    fill(p, 20 * MIB, 1);
    CHECK_ERRNO(mremap(p, 20 * MIB, 4 * GIB, MREMAP_MAYMOVE), MAP_FAILED, ENOMEM);
    CHECK(holds(p, 20 * MIB, 1));
    /* Exhaust it in small steps; the last mmap fails cleanly, freeing helps. */
    enum { MOST = 4096 };
    static unsigned char *got[MOST];
    int count = 0;
    while (count < MOST && (got[count] = mmap(NULL, MIB, RW, ANON, -1, 0)) != MAP_FAILED) got[count++][0] = 1;
    CHECK(count > 0 && count < MOST && errno == ENOMEM);
    CHECK(munmap(got[--count], MIB) == 0);
    unsigned char *again = mmap(NULL, MIB / 2, RW, ANON, -1, 0);
    CHECK(again != MAP_FAILED && all_zero(again, MIB / 2));
    _exit(0);
}

int main(void) {
    pid_t pid = fork();
    if (pid == 0) run(RLIMIT_AS, 200 * MIB);
    CHECK(wait_for(pid) == 0);
    pid = fork();
    if (pid == 0) run(RLIMIT_DATA, 200 * MIB);
    CHECK(wait_for(pid) == 0);
    return ok();
}

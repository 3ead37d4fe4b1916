/* _Fork, and clone past libc, while other threads remap, map and discard: no handler of pthread_atfork runs, whatever lock the
 * library holds at that moment. The children may do what is safe after such a fork; the parent goes on, and forks as usual. */
#include "../guest.h"
#include <sys/syscall.h>

enum { THREADS = 2 };
static volatile int finished;

static void *remap(void *argument) {
    uint64_t seed = (uintptr_t)argument;
    while (!finished) {
        size_t pages = 2 + random_next(&seed) % 80;
        unsigned char *p = map_anon(pages * PAGE);
        p[0] = 1;
        p[(pages - 1) * PAGE] = 2;
        unsigned char *q = mremap(p, pages * PAGE, (pages + 100) * PAGE, MREMAP_MAYMOVE);
        CHECK(q != MAP_FAILED && q[0] == 1 && q[(pages - 1) * PAGE] == 2);
        CHECK(madvise(q, pages * PAGE, MADV_DONTNEED) == 0 && q[0] == 0);
        CHECK(munmap(q, (pages + 100) * PAGE) == 0);
    }
    return NULL;
}

/* Memory calls in a child of such a fork: safe as any system call is. */
static void in_child(const unsigned char *kept) {
    alarm(20);
    CHECK(holds(kept, 4 * PAGE, 3));
    unsigned char *p = map_anon(3 * MIB);
    fill(p, 4 * PAGE, 4);
    CHECK(holds(p, 4 * PAGE, 4));
    unsigned char *q = mremap(p, 3 * MIB, 5 * MIB, MREMAP_MAYMOVE);
    CHECK(q != MAP_FAILED && holds(q, 4 * PAGE, 4) && munmap(q, 5 * MIB) == 0);
    syscall(SYS_exit_group, 0);
}

int main(int argc, char **argv) {
    int forks = argc > 1 ? atoi(argv[1]) : 60;
    pthread_t running[THREADS];
    unsigned char *kept = map_anon(MIB);
    fill(kept, 4 * PAGE, 3);
    for (size_t t = 0; t < THREADS; t++) running[t] = start(remap, (void *)(t + 1));
    for (int i = 0; i < forks; i++) {
        pid_t pid = i % 3 == 0 ? _Fork() : i % 3 == 1 ? (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0) : fork();
        if (pid == 0) in_child(kept);
        alarm(60);
        int status = wait_for(pid);
        if (status) FAIL("child %d: %d", i, status);
    }
    finished = 1;
    for (size_t t = 0; t < THREADS; t++) CHECK(pthread_join(running[t], NULL) == 0);
    return ok();
}

/* A storm of timer signals whose handler maps, protects and unmaps while main and a thread do the same. */
#include "guest.h"
#include <sys/time.h>

static volatile int handled;
static volatile int stop;

static void on_alarm(int signal_number) {
    (void)signal_number;
    int saved = errno;
    unsigned char *p = mmap(NULL, 3 * PAGE, RW, ANON, -1, 0);
    CHECK(p != MAP_FAILED && all_zero(p, 3 * PAGE));
    p[0] = p[PAGE] = p[2 * PAGE] = 5;
    (void)is_done(mprotect(p + PAGE, PAGE, PROT_NONE));
    if (is_done(madvise(p, PAGE, MADV_DONTNEED))) CHECK(p[0] == 0);
    CHECK(munmap(p, 3 * PAGE) == 0);
    handled++;
    errno = saved;
}

static void *other(void *unused) {
    for (uint64_t seed = 1; !stop; seed++) churn(seed, 50, 300 * KIB);
    return unused;
}

int main(void) {
    struct sigaction act = {.sa_handler = on_alarm, .sa_flags = SA_RESTART};
    CHECK(sigaction(SIGALRM, &act, NULL) == 0);
    struct itimerval every = {{0, 300}, {0, 300}}, off = {{0, 0}, {0, 0}};
    pthread_t thread = start(other, NULL);
    CHECK(setitimer(ITIMER_REAL, &every, NULL) == 0);
    for (uint64_t seed = 1; handled < 500; seed++) {
        churn(seed, 100, 300 * KIB);
        unsigned char *p = map_anon(2 * MIB);
        CHECK(all_zero(p, 2 * MIB));
        memset(p, 1, MIB);
        errno = 55;
        CHECK(munmap(p, 2 * MIB) == 0);
        CHECK(errno == 55);
    }
    CHECK(setitimer(ITIMER_REAL, &off, NULL) == 0);
    stop = 1;
    CHECK(pthread_join(thread, NULL) == 0);
    return ok();
}

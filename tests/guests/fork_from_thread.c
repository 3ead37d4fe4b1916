/* fork from a thread while others allocate: the child has one thread and a usable allocator. */
#include "guest.h"

static volatile int stop;

static void *allocate(void *seed) {
    for (uint64_t s = (uintptr_t)seed; !stop; s++) {
        churn(s, 50, 200 * KIB);
        unsigned char *p = map_anon(300 * KIB);
        CHECK(all_zero(p, 300 * KIB));
        fill(p, 5000, 1);
        CHECK(munmap(p, 300 * KIB) == 0);
    }
    return NULL;
}

static void *fork_often(void *unused) {
    for (int i = 0; i < 10; i++) {
        pid_t pid = fork();
        if (pid == 0) {
            churn(i + 1, 100, 300 * KIB);
            unsigned char *p = map_anon(4 * MIB);
            CHECK(all_zero(p, 4 * MIB));
            CHECK(munmap(p, 4 * MIB) == 0);
            pthread_t thread = start(allocate, (void *)5);
            usleep(500);
            stop = 1;
            CHECK(pthread_join(thread, NULL) == 0);
            _exit(3);
        }
        CHECK(wait_for(pid) == 3);
    }
    return unused;
}

int main(void) {
    pthread_t a = start(allocate, (void *)1), b = start(allocate, (void *)2), f = start(fork_often, NULL);
    CHECK(pthread_join(f, NULL) == 0);
    stop = 1;
    CHECK(pthread_join(a, NULL) == 0);
    CHECK(pthread_join(b, NULL) == 0);
    return ok();
}

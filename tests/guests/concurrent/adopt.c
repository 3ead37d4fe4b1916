/* Two threads of a fresh child are the first in it to ask for memory, at the same moment. Argument: how many such children. */
#include "../guest.h"

enum { THREADS = 3 };
static pthread_barrier_t together;

static void *first_calls(void *argument) {
    size_t bytes = 3 * MIB + (uintptr_t)argument * 64 * KIB;
    pthread_barrier_wait(&together);
    for (int round = 0; round < 4; round++) {
        unsigned char *p = map_anon(bytes);
        CHECK(all_zero(p, bytes / 16));
        fill(p, 8 * PAGE, (unsigned)(uintptr_t)argument);
        CHECK(holds(p, 8 * PAGE, (unsigned)(uintptr_t)argument));
        CHECK(munmap(p, bytes) == 0);
    }
    return NULL;
}

int main(int argc, char **argv) {
    int children = argc > 1 ? atoi(argv[1]) : 60;
    unsigned char *before = map_anon(4 * MIB);
    fill(before, 64 * KIB, 9);
    for (int i = 0; i < children; i++) {
        pid_t pid = fork();
        if (pid == 0) {
            pthread_t running[THREADS];
            alarm(20);
            CHECK(pthread_barrier_init(&together, NULL, THREADS + 1) == 0);
            for (size_t t = 0; t < THREADS; t++) running[t] = start(first_calls, (void *)(t + 1));
            pthread_barrier_wait(&together);
            CHECK(munmap(map_anon(MIB), MIB) == 0);
            for (size_t t = 0; t < THREADS; t++) CHECK(pthread_join(running[t], NULL) == 0);
            CHECK(holds(before, 64 * KIB, 9));
            _exit(0);
        }
        int status = wait_for(pid);
        if (status) FAIL("child %d: %d", i, status);
    }
    return ok();
}

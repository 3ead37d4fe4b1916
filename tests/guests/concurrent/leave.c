/* Several threads end the process at the same moment: it ends, with the status of one of them. Argument: how many such children. */
#include "../guest.h"

enum { THREADS = 4, BYTES = 6 << 20 };
static pthread_barrier_t together;

static void *leave(void *argument) {
    pthread_barrier_wait(&together);
    _exit(40 + (int)(uintptr_t)argument);
}

int main(int argc, char **argv) {
    int children = argc > 1 ? atoi(argv[1]) : 40;
    unsigned char *p = map_anon(BYTES);
    for (size_t at = 0; at < BYTES; at += PAGE) p[at] = 1;
    for (int i = 0; i < children; i++) {
        pid_t pid = fork();
        if (pid == 0) {
            alarm(20);
            unsigned char *own = map_anon(BYTES);
            for (size_t at = 0; at < BYTES; at += PAGE) own[at] = 1;
            CHECK(pthread_barrier_init(&together, NULL, THREADS) == 0);
            for (size_t t = 1; t < THREADS; t++) start(leave, (void *)t);
            leave(NULL);
        }
        int status = wait_for(pid);
        if (status < 40 || status >= 40 + THREADS) FAIL("child %d: %d", i, status);
    }
    return ok();
}

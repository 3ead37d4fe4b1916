/* What libc repairs in a forked child, which has none of the other threads. Argument "stream": the lock of a stream that one
 * of them holds is free. "arena": the arena of malloc that one of them uses can be given to a thread. Regression: on
 * reserved pages the child's memory was a copy from before the repair. */
#include "guest.h"

static FILE *stream;
static volatile int ready;

static void *hold_lock(void *unused) {
    flockfile(stream);
    ready = 1;
    for (;;) pause();
    return unused;
}

static void *use_arena(void *unused) {
    unsigned char *p = malloc(100 * KIB);
    CHECK(p);
    fill(p, 100 * KIB, 1);
    ready = 1;
    for (;;) pause();
    return unused;
}

static void *allocate(void *unused) {
    churn(3, 100, 8 * KIB);
    return unused;
}

int main(int argc, char **argv) {
    CHECK(argc == 2);
    int is_stream = strcmp(argv[1], "stream") == 0;
    CHECK((stream = fopen("/dev/null", "r")) != NULL);
    start(is_stream ? hold_lock : use_arena, NULL);
    while (!ready) usleep(1000);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        if (is_stream)
            CHECK(ftrylockfile(stream) == 0);
        else
            CHECK(pthread_join(start(allocate, NULL), NULL) == 0);
        _exit(3);
    }
    CHECK(wait_20_s_for(child) == 3);
    _exit(ok()); /* exit would wait for the stream */
}

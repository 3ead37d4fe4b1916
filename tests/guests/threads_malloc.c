/* Threads that malloc, write, check and free, more threads than cores; arguments: threads, rounds, keep MiB,
 * "stay" to end the process while they live (glibc discards most of an ended thread's stack, which splits its tile). */
#include "guest.h"

static int rounds = 1500;
static size_t keep_bytes = 0;
static pthread_barrier_t all_running; /* so that each thread needs an arena of its own */
static pthread_barrier_t all_done;
static int stay;

static void *work(void *seed) {
    pthread_barrier_wait(&all_running);
    unsigned char **kept = calloc(keep_bytes / (64 * KIB) + 1, sizeof *kept);
    size_t count = keep_bytes / (64 * KIB);
    CHECK(kept);
    for (size_t i = 0; i < count; i++) {
        kept[i] = malloc(64 * KIB);
        CHECK(kept[i]);
        memset(kept[i], (int)(i + (uintptr_t)seed), 64 * KIB);
    }
    churn((uintptr_t)seed, rounds, 40 * KIB);
    for (size_t i = 0; i < count; i++) {
        CHECK(kept[i][0] == (unsigned char)(i + (uintptr_t)seed));
        CHECK(memcmp(kept[i], kept[i] + 1, 64 * KIB - 1) == 0);
    }
    if (stay) {
        pthread_barrier_wait(&all_done);
        for (;;) pause();
    }
    /* What is kept stays until exit, so that placement is measured while it is there. */
    return kept;
}

int main(int argc, char **argv) {
    long threads = argc > 1 ? atol(argv[1]) : 8;
    if (argc > 2) rounds = atoi(argv[2]);
    if (argc > 3) keep_bytes = (size_t)atol(argv[3]) * MIB / (size_t)threads;
    stay = argc > 4;
    CHECK(threads > 0 && threads <= 256);
    pthread_t running[256];
    CHECK(pthread_barrier_init(&all_running, NULL, (unsigned)threads + stay) == 0);
    for (long i = 0; i < threads; i++) running[i] = start(work, (void *)(i + 1));
    if (stay) {
        CHECK(pthread_barrier_init(&all_done, NULL, (unsigned)threads + 1) == 0);
        pthread_barrier_wait(&all_running);
        pthread_barrier_wait(&all_done);
        return ok();
    }
    for (long i = 0; i < threads; i++) CHECK(pthread_join(running[i], NULL) == 0);
    return ok();
}

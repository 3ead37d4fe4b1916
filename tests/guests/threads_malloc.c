/* Threads that malloc, write, check and free, more threads than cores; arguments: threads, rounds, keep MiB. */
#include "guest.h"

static int rounds = 4000;
static size_t keep_bytes = 0;

static void *work(void *seed) {
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
    /* What is kept stays until exit, so that placement is measured while it is there. */
    return kept;
}

int main(int argc, char **argv) {
    long threads = argc > 1 ? atol(argv[1]) : 8;
    if (argc > 2) rounds = atoi(argv[2]);
    if (argc > 3) keep_bytes = (size_t)atol(argv[3]) * MIB / (size_t)threads;
    CHECK(threads > 0 && threads <= 256);
    pthread_t running[256];
    for (long i = 0; i < threads; i++) running[i] = start(work, (void *)(i + 1));
    for (long i = 0; i < threads; i++) CHECK(pthread_join(running[i], NULL) == 0);
    return ok();
}

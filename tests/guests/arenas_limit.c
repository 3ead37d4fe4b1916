/* Each thread's arena of malloc takes what the thread uses, not the rest of a large page: a limit on data leaves room for other memory.
 * Regression: each arena had up to 2 MiB accessible, and so committed, that nobody asked for, and kept them when memory was short. */
#include "guest.h"
#include <malloc.h>
#include <sys/resource.h>

enum { THREADS = 48, LIMIT_MIB = 64 };
static pthread_barrier_t barrier;

static void *use_arena(void *number) {
    unsigned seed = (unsigned)(uintptr_t)number;
    pthread_barrier_wait(&barrier);
    pthread_barrier_wait(&barrier);
    unsigned char *few = malloc(1000);
    CHECK(few);
    fill(few, 1000, seed);
    pthread_barrier_wait(&barrier);
    pthread_barrier_wait(&barrier);
    /* The arena grows over what was taken back. */
    unsigned char *more[20];
    for (unsigned i = 0; i < 20; i++) {
        more[i] = malloc(10 * KIB);
        CHECK(more[i]);
        fill(more[i], 10 * KIB, seed + i);
    }
    for (unsigned i = 0; i < 20; i++) CHECK(holds(more[i], 10 * KIB, seed + i));
    CHECK(holds(few, 1000, seed));
    return NULL;
}

static void run(int threads) {
    struct rlimit limit = {LIMIT_MIB * MIB, LIMIT_MIB * MIB};
    pthread_t thread[THREADS];
    pthread_attr_t small;
    CHECK(mallopt(M_ARENA_MAX, THREADS + 1) == 1);
    CHECK(pthread_attr_init(&small) == 0 && pthread_attr_setstacksize(&small, 64 * KIB) == 0);
    CHECK(pthread_barrier_init(&barrier, NULL, (unsigned)threads + 1) == 0);
    for (int i = 0; i < threads; i++) CHECK(pthread_create(&thread[i], &small, use_arena, (void *)(uintptr_t)i) == 0);
    pthread_barrier_wait(&barrier);
    CHECK(setrlimit(RLIMIT_DATA, &limit) == 0);
    pthread_barrier_wait(&barrier);
    pthread_barrier_wait(&barrier);
    unsigned char *large = malloc(20 * MIB);
    if (!large) FAIL("no 20 MiB under a limit of %d MiB, beside %d arenas", LIMIT_MIB, threads);
    fill(large, 20 * MIB, 3);
    pthread_barrier_wait(&barrier);
    for (int i = 0; i < threads; i++) CHECK(pthread_join(thread[i], NULL) == 0);
    CHECK(holds(large, 20 * MIB, 3));
    free(large);
    _exit(0);
}

int main(void) {
    /* As many that their rests are within the limit, and more. */
    for (int threads = THREADS / 2; threads <= THREADS; threads += THREADS / 2) {
        pid_t child = fork();
        if (child == 0) run(threads);
        CHECK(wait_for(child) == 0);
    }
    return ok();
}

/* Threads map, touch and unmap memory side by side, of one another's in no time: what is placed for one thread lies beside,
 * or where just now was, another one's. Every page as promised, nothing lost. Arguments: threads (default 4), rounds (400). */
#include "frames.h"

static long threads = 4, rounds = 400;

static void *run(void *argument) {
    uint64_t id = (uintptr_t)argument, seed = 977 * (id + 1);
    for (long round = 0; round < rounds; round++) come_and_go(id, &seed);
    return NULL;
}

int main(int argc, char **argv) {
    if (argc > 1) threads = atol(argv[1]);
    if (argc > 2) rounds = atol(argv[2]);
    CHECK(threads >= 1 && threads <= 64);
    pthread_t running[64];
    for (long i = 0; i < threads; i++) running[i] = start(run, (void *)i);
    for (long i = 0; i < threads; i++) CHECK(pthread_join(running[i], NULL) == 0);
    return ok();
}

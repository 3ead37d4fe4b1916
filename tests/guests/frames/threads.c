/* Threads touch the same pages at the same moment: each page comes once, no write is lost, every page as promised.
 * Arguments: threads (default 4), pages (default 3000). */
#include "frames.h"

static unsigned char *memory;
static size_t pages = 3000;
static long threads = 4;
static pthread_barrier_t barrier;

static void *touch_all(void *argument) {
    uint64_t id = (uintptr_t)argument, seed = id + 1;
    volatile unsigned char local[3 * PAGE];
    for (size_t i = 0; i < sizeof local; i += PAGE) local[i] = 1;
    CHECK_PLACED((void *)(((uintptr_t)local + PAGE) & ~(PAGE - 1)), 1); /* the thread's stack is governed, too */
    /* All in the same order, at the same time; then in orders of their own; then into the same words. */
    for (int round = 0; round < 3; round++) {
        pthread_barrier_wait(&barrier);
        unsigned char *p = memory + (size_t)round * pages * PAGE;
        for (size_t n = 0; n < pages; n++) {
            size_t i = round == 0 ? n : round == 1 ? random_next(&seed) % pages : (n * 769 + id) % pages;
            __atomic_add_fetch((uint64_t *)(p + i * PAGE), 1, __ATOMIC_RELAXED);
            if (round == 1) __atomic_add_fetch((uint64_t *)(p + n * PAGE + 8), 1, __ATOMIC_RELAXED);
        }
    }
    /* Each its own mappings, coming and going. */
    for (int i = 0; i < 60; i++) come_and_go(id, &seed);
    churn(id + 1, 300, 200 * KIB);
    return NULL;
}

int main(int argc, char **argv) {
    if (argc > 1) threads = atol(argv[1]);
    if (argc > 2) pages = strtoull(argv[2], NULL, 10);
    CHECK(threads >= 1 && threads <= 64 && pages > 769);
    memory = map_anon(3 * pages * PAGE);
    CHECK(pthread_barrier_init(&barrier, NULL, (unsigned)threads) == 0);
    pthread_t running[64];
    for (long i = 0; i < threads; i++) running[i] = start(touch_all, (void *)i);
    for (long i = 0; i < threads; i++) CHECK(pthread_join(running[i], NULL) == 0);
    for (size_t i = 0; i < 3 * pages; i++) {
        uint64_t sum, each;
        memcpy(&sum, memory + i * PAGE, 8);
        memcpy(&each, memory + i * PAGE + 8, 8);
        size_t round = i / pages;
        if (round == 0) CHECK(sum == (uint64_t)threads);
        if (round == 1) CHECK(each == (uint64_t)threads);
        if (round == 2) CHECK(sum == (uint64_t)threads || pages % 769 == 0);
    }
    CHECK_PLACED(memory, 3 * pages);
    return ok();
}

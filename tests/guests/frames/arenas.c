/* malloc in the first thread (heap) and in others (arenas), small and large: every whole page of a block is placed. */
#include "frames.h"

static void check_block(unsigned char *p, size_t bytes) {
    unsigned char *first = (unsigned char *)(((uintptr_t)p + PAGE - 1) & ~(PAGE - 1));
    unsigned char *end = (unsigned char *)((uintptr_t)(p + bytes) & ~(PAGE - 1));
    if (end > first) CHECK_PLACED(first, (size_t)(end - first) / PAGE);
}

static void *allocate(void *argument) {
    enum { BLOCKS = 200 };
    static __thread unsigned char *block[BLOCKS];
    static __thread size_t size[BLOCKS];
    uint64_t seed = (uintptr_t)argument + 11;
    for (int round = 0; round < 3; round++) {
        for (unsigned i = 0; i < BLOCKS; i++) {
            size[i] = 100 + random_next(&seed) % (i % 10 ? 12 * KIB : 300 * KIB);
            block[i] = i % 3 ? malloc(size[i]) : calloc(1, size[i]);
            CHECK(block[i] && (i % 3 || all_zero(block[i], size[i])));
            fill(block[i], size[i], i);
        }
        for (unsigned i = 0; i < BLOCKS; i++) {
            CHECK(holds(block[i], size[i], i));
            if (i % 8 == 0) check_block(block[i], size[i]);
            free(block[i]);
        }
    }
    return NULL;
}

int main(void) {
    pthread_t running[4];
    allocate(NULL);
    for (uintptr_t i = 0; i < 4; i++) running[i] = start(allocate, (void *)(i + 1));
    for (int i = 0; i < 4; i++) CHECK(pthread_join(running[i], NULL) == 0);
    allocate(NULL);
    return ok();
}

/* calloc trusts fresh memory to be zero (glibc skips the memset for it): heap, arena and mmapped. */
#include "guest.h"
#include <malloc.h>

static void *work(void *argument) {
    uint64_t seed = (uintptr_t)argument;
    void *held[40] = {0};
    for (int i = 0; i < 250; i++) {
        unsigned s = random_next(&seed) % 40;
        size_t bytes = 1000 + random_next(&seed) % (i % 5 == 0 ? 3 * MIB : 60 * KIB);
        free(held[s]);
        held[s] = calloc(1, bytes);
        CHECK(held[s] && all_zero(held[s], bytes));
        memset(held[s], 0xAB, bytes);
        if (i % 50 == 49) {
            for (int j = 0; j < 40; j++) {
                free(held[j]);
                held[j] = NULL;
            }
            malloc_trim(0); /* gives pages back, by brk and by MADV_DONTNEED */
        }
    }
    return NULL;
}

int main(void) {
    work((void *)1);
    pthread_t a = start(work, (void *)2), b = start(work, (void *)3);
    CHECK(pthread_join(a, NULL) == 0 && pthread_join(b, NULL) == 0);
    work((void *)4);
    return ok();
}

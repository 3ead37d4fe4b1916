/* Thread-local storage, small and large, and key destructors that allocate while the thread ends. */
#include "guest.h"

static __thread int small = 5;
static __thread unsigned char large[300 * 1024];
static pthread_key_t key;
static int destroyed;

static void destroy(void *p) {
    CHECK(holds(p, 1000, 1));
    free(p);
    unsigned char *again = malloc(200 * KIB);
    CHECK(again);
    fill(again, 200 * KIB, 2);
    free(again);
    __atomic_add_fetch(&destroyed, 1, __ATOMIC_SEQ_CST);
}

static void *work(void *argument) {
    CHECK(small == 5);
    CHECK(all_zero(large, sizeof large));
    small = (int)(uintptr_t)argument;
    memset(large, small, sizeof large);
    unsigned char *p = malloc(1000);
    fill(p, 1000, 1);
    CHECK(pthread_setspecific(key, p) == 0);
    churn((uintptr_t)argument, 100, 100 * KIB);
    CHECK(small == (int)(uintptr_t)argument && large[sizeof large - 1] == (unsigned char)small);
    return NULL;
}

int main(void) {
    CHECK(pthread_key_create(&key, destroy) == 0);
    for (int round = 0; round < 10; round++) {
        pthread_t running[8];
        for (long i = 0; i < 8; i++) running[i] = start(work, (void *)(i + 10));
        for (long i = 0; i < 8; i++) CHECK(pthread_join(running[i], NULL) == 0);
    }
    CHECK(destroyed == 80 && small == 5);
    return ok();
}

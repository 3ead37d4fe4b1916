/* pthread_cancel of threads that map memory in a loop; cleanup handlers free what was theirs. */
#include "guest.h"

static void unmap(void *p) { CHECK(munmap(p, 300 * KIB) == 0); }

static void *loop(void *unused) {
    for (;;) {
        unsigned char *p = map_anon(300 * KIB);
        pthread_cleanup_push(unmap, p);
        fill(p, 2 * PAGE, 1);
        pthread_testcancel();
        pthread_cleanup_pop(1);
    }
    return unused;
}

int main(void) {
    for (int i = 0; i < 20; i++) {
        pthread_t a = start(loop, NULL), b = start(loop, NULL);
        void *result;
        usleep(300);
        CHECK(pthread_cancel(a) == 0 && pthread_cancel(b) == 0);
        CHECK(pthread_join(a, &result) == 0 && result == PTHREAD_CANCELED);
        CHECK(pthread_join(b, &result) == 0 && result == PTHREAD_CANCELED);
    }
    churn(1, 300, 300 * KIB);
    return ok();
}

/* pthread_exit from main: the process lives on in its other thread, which ends it. */
#include "guest.h"

static pthread_t main_thread;

static void *outlive(void *unused) {
    (void)unused;
    CHECK(pthread_join(main_thread, NULL) == 0);
    churn(3, 500, 300 * KIB);
    ok();
    return NULL; /* the last thread: the process exits with 0 */
}

int main(void) {
    main_thread = pthread_self();
    CHECK(pthread_detach(start(outlive, NULL)) == 0);
    pthread_exit(NULL);
}

/* Deep recursion on the main stack and on a 256 MiB thread stack, allocating at the bottom. */
#include "guest.h"

static int deep(int levels) {
    volatile char frame[4000];
    frame[0] = 1;
    frame[3999] = 1;
    if (levels == 0) {
        churn(1, 200, 300 * KIB);
        return 0;
    }
    return deep(levels - 1) + frame[0];
}

static void *in_thread(void *unused) {
    CHECK(deep(40000) == 40000);
    return unused;
}

int main(void) {
    CHECK(deep(1500) == 1500);
    pthread_attr_t attributes;
    pthread_t thread;
    CHECK(pthread_attr_init(&attributes) == 0);
    CHECK(pthread_attr_setstacksize(&attributes, 256 * MIB) == 0);
    CHECK(pthread_create(&thread, &attributes, in_thread, NULL) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
    return ok();
}

/* A thread that runs over its stack dies by SIGSEGV on the guard page; so does the main thread. */
#include "guest.h"

static int deeper(volatile char *previous) {
    volatile char frame[4000];
    frame[0] = previous[0];
    if (frame[0] == 0) return 0; /* never: the byte handed down is 1 */
    return deeper(frame) + frame[0];
}

static void *overflow(void *unused) {
    volatile char first[1] = {1};
    deeper(first);
    return unused;
}

int main(void) {
    pid_t pid = fork();
    if (pid == 0) {
        pthread_attr_t attributes;
        pthread_t thread;
        CHECK(pthread_attr_init(&attributes) == 0);
        CHECK(pthread_attr_setstacksize(&attributes, 512 * KIB) == 0);
        CHECK(pthread_create(&thread, &attributes, overflow, NULL) == 0);
        pthread_join(thread, NULL);
        _exit(0);
    }
    CHECK(wait_for(pid) == 128 + SIGSEGV);
    pid = fork();
    if (pid == 0) overflow(NULL);
    CHECK(wait_for(pid) == 128 + SIGSEGV);
    return ok();
}

/* The first thread ends; the others go on, fork, and end the process. */
#include "frames.h"

static pthread_t first;

static void *outlive(void *unused) {
    CHECK(pthread_join(first, NULL) == 0);
    for (int i = 0; i < 50; i++) {
        unsigned char *p = map_anon(100 * PAGE);
        write_tags(p, 100, 1);
        check_tags(p, 100, 1);
        /* /proc/self is the first thread, which is gone: /proc/thread-self still has a pagemap. */
        CHECK(munmap(p, 100 * PAGE) == 0);
    }
    pid_t pid = fork();
    if (pid == 0) {
        unsigned char *p = map_anon(100 * PAGE);
        write_tags(p, 100, 1);
        CHECK_PLACED(p, 100);
        exit(0);
    }
    CHECK(wait_for(pid) == 0);
    churn(3, 500, 300 * KIB);
    ok();
    return unused;
}

int main(void) {
    first = pthread_self();
    CHECK(pthread_detach(start(outlive, NULL)) == 0);
    unsigned char *p = map_anon(100 * PAGE);
    write_tags(p, 100, 1);
    CHECK_PLACED(p, 100);
    pthread_exit(NULL);
}

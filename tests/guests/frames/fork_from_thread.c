/* fork from a thread that is not the first, while the others fault: nobody hangs, the child's memory is placed. */
#include "frames.h"

enum { OTHERS = 2, FORKS = 12 };
static volatile int done;

static void *keep_faulting(void *argument) {
    uint64_t tag = (uint64_t)(uintptr_t)argument << 40;
    while (!done) {
        unsigned char *p = map_anon(30 * PAGE);
        write_tags(p, 30, tag);
        check_tags(p, 30, tag); /* a fork in between may have had pages copied, to frames of the kernel's choice */
        CHECK(munmap(p, 30 * PAGE) == 0);
    }
    return NULL;
}

static void *in_the_child(void *unused) {
    unsigned char *p = map_anon(100 * PAGE);
    write_tags(p, 100, 3);
    check_tags(p, 100, 3);
    CHECK_PLACED(p, 100);
    return unused;
}

static void *fork_again_and_again(void *before) {
    for (int i = 0; i < FORKS; i++) {
        pid_t pid = fork();
        if (pid == 0) {
            check_tags(before, 64, 5);
            in_the_child(NULL);
            CHECK(pthread_join(start(in_the_child, NULL), NULL) == 0);
            if (i % 2) exit(0);
            _exit(0);
        }
        CHECK(wait_for(pid) == 0);
    }
    return NULL;
}

int main(void) {
    unsigned char *before = map_anon(64 * PAGE);
    write_tags(before, 64, 5);
    pthread_t others[OTHERS];
    for (uintptr_t i = 0; i < OTHERS; i++) others[i] = start(keep_faulting, (void *)(i + 1));
    CHECK(pthread_join(start(fork_again_and_again, before), NULL) == 0);
    done = 1;
    for (int i = 0; i < OTHERS; i++) CHECK(pthread_join(others[i], NULL) == 0);
    check_tags(before, 64, 5);
    return ok();
}

/* Threads that the program's own handlers of forks (pthread_atfork) make, in the parent and in the child, have the
 * program's signal mask, and setuid, which waits for an answer of every thread, returns. Regression: if the first hint
 * came after the handlers were registered, they ran while the library had blocked all signals. */
#include "forks.h"

static volatile int made, blocked;

static void *work(void *unused) {
    sigset_t mask;
    CHECK(pthread_sigmask(SIG_SETMASK, NULL, &mask) == 0);
    blocked = sigismember(&mask, SIGTERM);
    made = 1;
    for (;;) pause();
    return unused;
}

static void make_worker(void) { start(work, NULL); }

static void check_worker(void) {
    while (!made) usleep(1000);
    if (blocked) FAIL("signals are blocked in a thread that a handler made");
    CHECK(setuid(getuid()) == 0);
}

static void fork_with_handlers(void) {
    CHECK(pthread_atfork(NULL, make_worker, make_worker) == 0);
    CHECK_API(pagelab_start(), answer);
    pid_t child = fork();
    CHECK(child >= 0);
    check_worker();
    if (child == 0) _exit(0);
    CHECK(wait_20_s_for(child) == 0);
}

int main(int argc, char **argv) {
    read_arguments(argc, argv);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        fork_with_handlers();
        _exit(0);
    }
    CHECK(wait_at_most(30, child) == 0);
    return ok();
}

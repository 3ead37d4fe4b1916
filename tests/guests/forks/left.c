/* A signal handler leaves forks by a jump, at any point of them; the first hint, and later forks, do as usual.
 * Regression: the hint waited 10 s for such a fork, and failed. */
#include "forks.h"
#include <sys/time.h>

static sigjmp_buf outside;
static volatile sig_atomic_t forking;

static void leave(int signal) {
    (void)signal;
    if (!forking) return;
    forking = 0;
    siglongjmp(outside, 1);
}

static void fork_for_at_most(long us) {
    const struct itimerval soon = {{0, 0}, {0, us}}, never = {{0, 0}, {0, 0}};
    if (sigsetjmp(outside, 1) == 0) {
        forking = 1;
        CHECK(setitimer(ITIMER_REAL, &soon, NULL) == 0);
        if (fork() == 0) _exit(0);
        forking = 0;
    }
    CHECK(setitimer(ITIMER_REAL, &never, NULL) == 0);
    while (waitpid(-1, NULL, 0) > 0) {}
}

int main(int argc, char **argv) {
    read_arguments(argc, argv);
    signal(SIGALRM, leave);
    for (long us = 1; us <= 200; us++) fork_for_at_most(us);
    signal(SIGALRM, SIG_DFL);
    alarm(8);
    CHECK_API(pagelab_start(), answer);
    alarm(0);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) _exit(0);
    CHECK(wait_at_most(30, child) == 0);
    return ok();
}

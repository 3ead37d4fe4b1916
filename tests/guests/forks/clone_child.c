/* A child of libc's clone ends when its function returns, by the system call that ends its only thread: the library starts
 * no threads in it. Argument "first": it gives the first hint. "grandchild": a forked child has given one, and its own
 * child, which clone makes, only asks. Regression: both got an engine, whose threads kept the process alive. */
#include "forks.h"
#include <sched.h>

static unsigned char stack[64 << 10] __attribute__((aligned(16)));

static int give_the_first_hint(void *unused) {
    (void)unused;
    CHECK_API(pagelab_start(), answer ? answer : -EOPNOTSUPP);
    return 3;
}

static int ask(void *unused) {
    (void)unused;
    CHECK_API(pagelab_strategy_at(stack), answer ? answer : PAGELAB_KERNEL);
    return 3;
}

static void make(int (*run)(void *)) {
    pid_t child = clone(run, stack + sizeof stack, SIGCHLD, NULL);
    CHECK(child > 0);
    CHECK(wait_20_s_for(child) == 3);
}

int main(int argc, char **argv) {
    read_arguments(argc, argv);
    CHECK(argc > 1);
    if (strcmp(argv[1], "first") == 0) {
        make(give_the_first_hint);
        return ok();
    }
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        CHECK_API(pagelab_start(), answer);
        make(ask);
        _exit(0);
    }
    CHECK(wait_at_most(30, child) == 0);
    return ok();
}

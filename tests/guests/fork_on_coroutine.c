/* fork on a stack that the program maps itself, as coroutines do: parent and child return to it. Argument "threads": in a
 * program with several. Regression: where the stack lay in a reserved page, it was missing in the child, or was a copy from
 * before the fork, by which the child took itself for the parent. */
#include "guest.h"
#include <ucontext.h>

#define STACK (256 * KIB)
static ucontext_t home, routine;
static pid_t parent;
static int forked;

static void run(void) {
    volatile int local = 41;
    pid_t child = fork();
    local++;
    if (child == 0) _exit(local == 42 ? 3 : 4);
    if (getpid() != parent) FAIL("the child takes itself for the parent");
    CHECK(child > 0 && local == 42);
    CHECK(wait_20_s_for(child) == 3);
    forked = 1;
}

static void *idle(void *unused) {
    for (;;) pause();
    return unused;
}

int main(int argc, char **argv) {
    parent = getpid();
    if (argc > 1 && strcmp(argv[1], "threads") == 0) start(idle, NULL);
    unsigned char *stack = map_anon(STACK); /* without MAP_STACK, as from malloc */
    memset(stack, 0, STACK);
    CHECK(getcontext(&routine) == 0);
    routine.uc_stack.ss_sp = stack;
    routine.uc_stack.ss_size = STACK;
    routine.uc_link = &home;
    makecontext(&routine, run, 0);
    CHECK(swapcontext(&home, &routine) == 0);
    CHECK(forked);
    return ok();
}

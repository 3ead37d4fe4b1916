/* clone without libc's fork: no atfork handler runs in the child, which still must be able to map memory. */
#include "guest.h"
#include <sched.h>
#include <sys/syscall.h>

static int borrowed(void *argument) {
    *(volatile int *)argument = 5;
    return 6;
}

/* Ends by the system call that ends a thread: so does libc's clone when its function returns. */
static int returns(void *argument) {
    unsigned char *mapped = argument;
    CHECK(holds(mapped, 4 * MIB, 1));
    unsigned char *own = map_anon(3 * MIB);
    fill(own, 3 * MIB, 2);
    CHECK(holds(own, 3 * MIB, 2));
    return 3;
}

int main(void) {
    unsigned char *mapped = map_anon(4 * MIB);
    fill(mapped, 4 * MIB, 1);
    pid_t pid = (pid_t)syscall(SYS_clone, SIGCHLD, NULL, NULL, NULL, NULL);
    if (pid == 0) {
        CHECK(holds(mapped, 4 * MIB, 1));
        CHECK(munmap(mapped + MIB, MIB) == 0);
        unsigned char *own = map_anon(3 * MIB);
        CHECK(all_zero(own, 3 * MIB));
        fill(own, 3 * MIB, 2);
        CHECK(holds(mapped + 2 * MIB, 0, 1) && holds_from(mapped + 2 * MIB, 2 * MIB, 1, 2 * MIB));
        _exit(4);
    }
    CHECK(wait_for(pid) == 4);
    CHECK(holds(mapped, 4 * MIB, 1));
    volatile int flag = 0;
    unsigned char *stack = map_anon(256 * KIB);
    pid = clone(borrowed, stack + 256 * KIB, CLONE_VM | CLONE_VFORK | SIGCHLD, (void *)&flag);
    CHECK(wait_for(pid) == 6);
    CHECK(flag == 5);
    pid = clone(returns, stack + 256 * KIB, SIGCHLD, mapped);
    CHECK(wait_for(pid) == 3);
    churn(1, 300, 300 * KIB);
    return ok();
}

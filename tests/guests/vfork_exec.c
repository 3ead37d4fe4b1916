/* vfork: the child borrows the parent's memory until exec or _exit. */
#include "guest.h"

int main(void) {
    char *const argv[] = {"true", NULL}, *const none[] = {NULL};
    volatile int seen = 0;
    for (int i = 0; i < 5; i++) {
        pid_t pid = vfork();
        if (pid == 0) {
            seen = i + 1;
            execve("/bin/true", argv, none);
            _exit(127);
        }
        CHECK(wait_for(pid) == 0);
        CHECK(seen == i + 1);
        pid = vfork();
        if (pid == 0) _exit(42);
        CHECK(wait_for(pid) == 42);
        churn(i + 1, 200, 300 * KIB);
    }
    return ok();
}

/* exec with an empty environment (env -i): the child starts without LD_PRELOAD, and must simply run. */
#include "guest.h"

extern char **environ;

int main(int argc, char **argv) {
    if (argc > 1) {
        churn(1, 300, 300 * KIB);
        return 9;
    }
    char *const child[] = {argv[0], "child", NULL}, *const none[] = {NULL};
    pid_t pid = fork();
    if (pid == 0) {
        execve("/proc/self/exe", child, none);
        FAIL("execve");
    }
    CHECK(wait_for(pid) == 9);
    pid = fork();
    if (pid == 0) {
        clearenv();
        churn(2, 300, 300 * KIB);
        execv("/proc/self/exe", child);
        FAIL("execv");
    }
    CHECK(wait_for(pid) == 9);
    return ok();
}

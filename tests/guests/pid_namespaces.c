/* The first process of a PID namespace starts a program in another one: each is process 1 there, and until the exec they
 * share memory. Without the rights for it, all of this happens in one namespace. */
#include "guest.h"
#include <sched.h>
#include <spawn.h>

extern char **environ;

static void enter_namespace(void) {
    if (unshare(CLONE_NEWPID) != 0) CHECK(errno == EPERM || errno == ENOSPC || errno == EINVAL);
}

int main(void) {
    enter_namespace();
    pid_t child = fork();
    if (child == 0) {
        char *const argv[] = {"true", NULL};
        pid_t program;
        unsigned char *block = map_anon(8 * MIB);
        fill(block, 8 * MIB, 1);
        enter_namespace();
        CHECK(posix_spawn(&program, "/bin/true", NULL, NULL, argv, environ) == 0 && wait_for(program) == 0);
        CHECK(holds(block, 8 * MIB, 1));
        _exit(5);
    }
    CHECK(wait_20_s_for(child) == 5);
    return ok();
}

/* A program with a child that only waits locks itself in with seccomp: frame placement ends, and the program goes on.
 * Regression: the child had a copy of the library's userfaultfd, and the program waited until it was closed. */
#include "frames.h"
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>

static void lock_in(void) {
    struct sock_filter all = BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    struct sock_fprog filter = {1, &all};
    CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
    CHECK(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter, 0, 0) == 0);
}

int main(void) {
    unsigned char *before = map_anon(4 * MIB);
    memset(before, 1, 2 * MIB);
    int go[2];
    CHECK(pipe(go) == 0);
    /* Past libc, which would tell the library. */
    pid_t child = (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
    CHECK(child >= 0);
    if (child == 0) {
        char byte;
        close(go[1]);
        _exit(read(go[0], &byte, 1) != 0);
    }
    alarm(30);
    lock_in();
    memset(before + 2 * MIB, 2, 2 * MIB);
    unsigned char *after = map_anon(MIB);
    memset(after, 3, MIB);
    for (size_t i = 0; i < 4 * MIB; i += PAGE) CHECK(before[i] == (i < 2 * MIB ? 1 : 2));
    CHECK(close(go[1]) == 0);
    int status = 0;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    return ok();
}

/* A child of vfork locks itself in with seccomp before its exec: the parent, whose memory it shares, goes on as before.
 * Regression: the library took the filter for the parent's, and the break could not be raised again. */
#include "guest.h"
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>

static struct sock_filter all = BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
static struct sock_fprog filter = {1, &all};

int main(void) {
    char *const argv[] = {"true", NULL};
    pid_t child = vfork();
    if (child == 0) {
        if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter, 0, 0)) _exit(126);
        execv("/bin/true", argv);
        _exit(127);
    }
    CHECK(wait_20_s_for(child) == 0);
    unsigned char *block = sbrk(MIB);
    CHECK(block != (void *)-1);
    fill(block, MIB, 1);
    CHECK(sbrk(-(intptr_t)MIB) == block + MIB && sbrk(MIB) == block);
    fill(block, MIB, 2);
    work_on_memory();
    CHECK(holds(block, MIB, 2));
    return ok();
}

/* Programs that enter a user namespace, or another process's: the kernel allows that to processes of a single thread, which this one is.
 * Regression: the library's threads made it fail. */
#include "frames.h"
#include <sched.h>

int main(void) {
    unsigned char *p = map_anon(64 * PAGE);
    write_tags(p, 64, 3);
    CHECK_PLACED(p, 64);
    int own = open("/proc/self/ns/mnt", O_RDONLY | O_CLOEXEC);
    CHECK(own >= 0);
    if (setns(own, CLONE_NEWNS) != 0) CHECK(errno == EPERM); /* not for this user */
    pid_t child = fork();
    if (child == 0) {
        unsigned char *q = map_anon(64 * PAGE);
        write_tags(q, 64, 4);
        if (unshare(CLONE_NEWUSER) != 0) CHECK(errno == EPERM || errno == ENOSPC); /* not on this machine */
        check_tags(q, 64, 4);
        write_tags(q, 64, 5);
        check_tags(p, 64, 3);
        _exit(0);
    }
    CHECK(wait_for(child) == 0);
    check_tags(p, 64, 3);
    unsigned char *after = map_anon(64 * PAGE);
    write_tags(after, 64, 6);
    check_tags(after, 64, 6);
    return ok();
}

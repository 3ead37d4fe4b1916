/* In a forked child, the child's own child by vfork is the first that maps memory. The forked child works on memory and
 * then locks itself in with seccomp: only the calls that it makes itself are allowed.
 * Regressions: the library took the child of vfork for its process. So the forked child had no record, its filter was not
 * noticed, and the library's own calls ended it. */
#include "../guest.h"
#include "own_filter.h"

static void run_true(void) {
    char *const argv[] = {"true", NULL};
    pid_t child = vfork();
    if (child == 0) {
        if (mmap(NULL, MIB, RW, ANON, -1, 0) == MAP_FAILED) _exit(126);
        execv("/bin/true", argv);
        _exit(127);
    }
    CHECK(wait_20_s_for(child) == 0);
}

int main(void) {
    pid_t child = fork();
    if (child == 0) {
        run_true();
        map_and_unmap();
        lock_in();
        map_and_unmap();
        _exit(5);
    }
    CHECK(wait_20_s_for(child) == 5);
    return ok();
}

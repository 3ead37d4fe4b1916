/* MADV_DONTFORK and MADV_WIPEONFORK: the child does not have the one and sees zero in the other. */
#include "guest.h"

int main(void) {
    unsigned char *p = map_anon(6 * MIB);
    fill(p, 6 * MIB, 1);
    CHECK(madvise(p + 2 * MIB, 2 * MIB, MADV_DONTFORK) == 0);
    CHECK(madvise(p + 4 * MIB, 2 * MIB, MADV_WIPEONFORK) == 0);
    pid_t pid = fork();
    if (pid == 0) {
        CHECK(holds(p, 2 * MIB, 1));
        CHECK(fault_signal(p + 2 * MIB, READ_ACCESS) == SIGSEGV);
        CHECK(all_zero(p + 4 * MIB, 2 * MIB));
        unsigned char *q = map_anon(4 * MIB); /* may reuse the hole; must be zero */
        CHECK(all_zero(q, 4 * MIB));
        _exit(0);
    }
    CHECK(wait_for(pid) == 0);
    CHECK(holds(p, 6 * MIB, 1));
    return ok();
}

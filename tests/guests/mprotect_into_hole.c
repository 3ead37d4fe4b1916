/* mprotect of a range that ends in a hole: the part before the hole gets the protection, also for a forked child, and then the call
 * fails with ENOMEM. Regression: on reserved pages it failed with EINVAL, and memory that was to be closed stayed open. */
#include "guest.h"

static unsigned char *block;

static void closed_before_the_hole(size_t part) {
    unsigned char *closed = block + 4 * MIB - part;
    CHECK_ERRNO(mprotect(closed, part + MIB, PROT_NONE), -1, ENOMEM);
    CHECK(fault_signal(closed, READ_ACCESS) == SIGSEGV && fault_signal(block + 4 * MIB - 1, WRITE_ACCESS) == SIGSEGV);
    CHECK(holds(block, 4 * MIB - part, 1));
    pid_t child = fork();
    if (child == 0) {
        CHECK(fault_signal(closed, READ_ACCESS) == SIGSEGV && holds(block, 4 * MIB - part, 1));
        CHECK(mprotect(closed, part, RW) == 0 && holds(block, 4 * MIB, 1));
        _exit(5);
    }
    CHECK(wait_for(child) == 5);
    CHECK_ERRNO(mprotect(closed, part + MIB, RW), -1, ENOMEM);
    CHECK(holds(block, 4 * MIB, 1));
    fill(block, 4 * MIB, 1);
}

int main(void) {
    block = map_anon(8 * MIB);
    fill(block, 8 * MIB, 1);
    CHECK(munmap(block + 4 * MIB, 2 * MIB) == 0);
    closed_before_the_hole(2 * MIB);
    closed_before_the_hole(MIB);
    /* What lies behind the hole stays as it is. */
    CHECK_ERRNO(mprotect(block + 3 * MIB, 4 * MIB, PROT_READ), -1, ENOMEM);
    CHECK(fault_signal(block + 3 * MIB, WRITE_ACCESS) == SIGSEGV && fault_signal(block + 6 * MIB, WRITE_ACCESS) == 0);
    CHECK_ERRNO(mprotect(block + 5 * MIB, 2 * MIB, PROT_READ), -1, ENOMEM);
    CHECK(fault_signal(block + 6 * MIB, WRITE_ACCESS) == 0);
    CHECK(munmap(block, 8 * MIB) == 0);
    return ok();
}

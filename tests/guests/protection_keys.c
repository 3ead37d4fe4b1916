/* pkey_mprotect has a system call of its own: keys guard governed memory too, where the processor has them. */
#include "guest.h"

int main(void) {
    unsigned char *p = map_anon(5 * MIB);
    fill(p, 5 * MIB, 1);
    CHECK(pkey_mprotect(p, MIB, PROT_READ, -1) == 0); /* -1: plain mprotect */
    CHECK(fault_signal(p, WRITE_ACCESS) == SIGSEGV && holds(p, 5 * MIB, 1));
    CHECK(pkey_mprotect(p, MIB, RW, -1) == 0);
    CHECK_ERRNO(pkey_mprotect(p + 1, PAGE, RW, -1), -1, EINVAL);
    CHECK_ERRNO(pkey_mprotect(p, MIB, RW, -2), -1, EINVAL);
    int key = pkey_alloc(0, 0);
    if (key < 0) { /* no keys on this machine */
        CHECK(errno == ENOSPC || errno == ENOSYS || errno == EINVAL);
        return ok();
    }
    CHECK(pkey_mprotect(p + 2 * MIB, MIB, RW, key) == 0);
    CHECK(pkey_set(key, PKEY_DISABLE_ACCESS) == 0);
    pid_t pid = fork(); /* a handler would run with other rights: let a child die of it */
    if (pid == 0) _exit(p[2 * MIB]);
    CHECK(wait_for(pid) == 128 + SIGSEGV);
    CHECK(pkey_set(key, 0) == 0 && holds(p, 5 * MIB, 1));
    CHECK(munmap(p, 5 * MIB) == 0 && pkey_free(key) == 0);
    return ok();
}

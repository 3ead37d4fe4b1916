/* mlockall(MCL_CURRENT) locks what the program has, not what it gets later: new blocks and new heap can be discarded, and are zero then.
 * Regression: memory mapped ahead of the call was locked with the rest, and served later blocks: MADV_DONTNEED failed there, and
 * whoever relied on zeros read old bytes; later still so by libc's syscall. */
#include "guest.h"

#define BYTES (64 * KIB)

static void check_free(const char *what, int flags, unsigned char *p, size_t bytes) {
    if (is_all(p, PAGE, " lo", " lo")) FAIL("%s after mlockall(%d) is locked", what, flags);
    fill(p, bytes, 5);
    if (madvise(p, bytes, MADV_DONTNEED) != 0) FAIL("MADV_DONTNEED of %s after mlockall(%d)", what, flags);
    CHECK(all_zero(p, bytes));
    fill(p, bytes, 6);
    if (madvise(p, bytes, MADV_FREE) != 0) FAIL("MADV_FREE of %s after mlockall(%d)", what, flags);
}

static void after(int flags, int by_syscall) {
    unsigned char *before = map_anon(BYTES), *small[4];
    *before = 1;
    CHECK(sbrk(PAGE) != (void *)-1);
    if ((by_syscall ? syscall(SYS_mlockall, flags) : mlockall(flags)) != 0) { /* beyond the limit: nothing to check here */
        CHECK(errno == ENOMEM || errno == EPERM);
        return;
    }
    for (int i = 0; i < 4; i++) check_free("a new block", flags, small[i] = map_anon(BYTES), BYTES);
    unsigned char *large = map_anon(5 * MIB);
    check_free("a large block", flags, large, 5 * MIB);
    unsigned char *heap = sbrk(2 * BYTES);
    CHECK(heap != (void *)-1);
    check_free("new heap", flags, (unsigned char *)(((uintptr_t)heap + PAGE - 1) & ~(PAGE - 1)), BYTES);
    CHECK((by_syscall ? syscall(SYS_munlockall) : munlockall()) == 0);
    for (int i = 0; i < 4; i++) CHECK(munmap(small[i], BYTES) == 0);
    CHECK(munmap(large, 5 * MIB) == 0 && munmap(before, BYTES) == 0);
}

int main(void) {
    if (status_kib("VmLck:") > 0) return ok(); /* the policy itself locks */
    for (int by_syscall = 0; by_syscall < 2; by_syscall++) {
        after(MCL_CURRENT, by_syscall);
        after(MCL_CURRENT | MCL_ONFAULT, by_syscall);
    }
    /* What is mapped in advance while everything is locked is no block's yet when that ends. */
    if (mlockall(MCL_CURRENT | MCL_FUTURE) == 0) {
        unsigned char *p = map_anon(BYTES);
        *p = 1;
        after(MCL_CURRENT, 0);
        CHECK(munmap(p, BYTES) == 0);
    }
    return ok();
}

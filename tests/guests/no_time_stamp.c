/* A program that may not read the processor's clock (PR_SET_TSC). Regression: the library read it, for the time, which was a
 * SIGSEGV; also where its own threads begin later, in a forked child. */
#include "guest.h"
#include <sys/prctl.h>

static void use_memory(void) {
    churn(1, 300, 300 * KIB);
    unsigned char *p = map_anon(9 * MIB);
    fill(p, 9 * MIB, 2);
    CHECK(mprotect(p, MIB, PROT_READ) == 0 && madvise(p + MIB, MIB, MADV_DONTNEED) == 0);
    CHECK(holds(p, MIB, 2) && all_zero(p + MIB, MIB));
    CHECK(munmap(p, 9 * MIB) == 0);
}

int main(void) {
    unsigned char *before = map_anon(3 * MIB);
    fill(before, 3 * MIB, 1);
    if (prctl(PR_SET_TSC, PR_TSC_SIGSEGV, 0, 0, 0) != 0) return ok(); /* not on this processor */
    use_memory();
    CHECK(munmap(before, 3 * MIB) == 0);
    pid_t child = fork();
    if (child == 0) {
        use_memory();
        _exit(5);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 5);
    return ok();
}

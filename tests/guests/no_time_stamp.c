/* A program that may not read the processor's clock (PR_SET_TSC). Regression: the library read it, for the time, which was a
 * SIGSEGV; also where its own threads begin later, in a forked child. */
#include "guest.h"
#include <sys/prctl.h>

int main(void) {
    unsigned char *before = map_anon(3 * MIB);
    fill(before, 3 * MIB, 1);
    if (prctl(PR_SET_TSC, PR_TSC_SIGSEGV, 0, 0, 0) != 0) return ok(); /* not on this processor */
    work_on_memory();
    CHECK(munmap(before, 3 * MIB) == 0);
    work_on_memory_in_child();
    return ok();
}

/* Not for every policy: a program that forbids itself transparent huge pages, so that a policy that wants them must
 * fall short, say so, and harm nothing. */
#include "guest.h"
#include <sys/prctl.h>

int main(void) {
    CHECK(prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0) == 0);
    unsigned char *p = map_anon(32 * MIB);
    fill(p, 32 * MIB, 1);
    churn(1, 500, 300 * KIB);
    CHECK(holds(p, 32 * MIB, 1));
    return ok();
}

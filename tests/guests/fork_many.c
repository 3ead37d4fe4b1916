/* Twenty children at once, each allocating; memory freed by one is not seen by another. */
#include "guest.h"

int main(void) {
    enum { CHILDREN = 20 };
    pid_t pids[CHILDREN];
    unsigned char *common = map_anon(MIB);
    fill(common, MIB, 1);
    for (int i = 0; i < CHILDREN; i++) {
        pids[i] = fork();
        if (pids[i] == 0) {
            CHECK(munmap(common + i * 8 * PAGE, 8 * PAGE) == 0);
            unsigned char *own = map_anon(MIB);
            CHECK(all_zero(own, MIB));
            fill(own, MIB, 100 + i);
            churn(i + 1, 200, 200 * KIB);
            CHECK(holds(own, MIB, 100 + i));
            _exit(i);
        }
    }
    for (int i = 0; i < CHILDREN; i++) CHECK(wait_for(pids[i]) == i);
    CHECK(holds(common, MIB, 1));
    return ok();
}

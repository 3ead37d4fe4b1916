/* exec: the image starts anew five times in one process, allocating each time; failed exec changes nothing. */
#include "guest.h"

int main(int argc, char **argv) {
    int left = argc > 1 ? atoi(argv[1]) : 5;
    churn(left + 1, 300, 300 * KIB);
    unsigned char *p = map_anon(3 * MIB);
    CHECK(all_zero(p, 3 * MIB));
    fill(p, 3 * MIB, 1);
    char *const no[] = {"no", NULL};
    CHECK_ERRNO(execv("/nonexistent/program", no), -1, ENOENT);
    CHECK(holds(p, 3 * MIB, 1));
    if (left == 0) return ok();
    char next[16];
    snprintf(next, sizeof next, "%d", left - 1);
    execl("/proc/self/exe", argv[0], next, NULL);
    FAIL("exec");
}

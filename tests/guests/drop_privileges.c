/* As root: chroot into an empty directory, become nobody, go on allocating; without root just the latter.
 * Argument: the directory. */
#include "guest.h"
#include <grp.h>

int main(int argc, char **argv) {
    CHECK(argc == 2);
    if (geteuid() == 0) {
        CHECK(chroot(argv[1]) == 0 && chdir("/") == 0);
        CHECK(setgroups(0, NULL) == 0 && setgid(65534) == 0 && setuid(65534) == 0);
        CHECK(open("/proc/self/maps", O_RDONLY) == -1);
    }
    churn(1, 600, 300 * KIB);
    unsigned char *p = map_anon(5 * MIB);
    CHECK(all_zero(p, 5 * MIB));
    fill(p, 5 * MIB, 1);
    pid_t pid = fork();
    if (pid == 0) {
        CHECK(holds(p, 5 * MIB, 1));
        churn(2, 600, 300 * KIB);
        exit(0);
    }
    CHECK(wait_for(pid) == 0);
    return ok();
}

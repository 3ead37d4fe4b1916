/* The library's threads share no list of semaphore adjustments with the program: kcmp(2) finds none in a program and its child
 * that have used none. Regression: the program had one. */
#include "frames.h"
#include <linux/kcmp.h>

int main(void) {
    memset(map_anon(MIB), 1, MIB);
    int go[2];
    char byte;
    CHECK(pipe(go) == 0);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        memset(map_anon(MIB), 1, MIB);
        close(go[1]);
        _exit(read(go[0], &byte, 1) != 0);
    }
    usleep(50000);
    long order = syscall(SYS_kcmp, getpid(), child, KCMP_SYSVSEM, 0, 0);
    CHECK(order == 0 || (order == -1 && (errno == ENOSYS || errno == EPERM)));
    CHECK(close(go[1]) == 0);
    int status = 0;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    return ok();
}

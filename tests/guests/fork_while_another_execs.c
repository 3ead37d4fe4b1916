/* fork while another thread is about to become another program (and fails to): the child can end. */
#include "guest.h"
#include <sys/stat.h>

static volatile int stop;
static char nonsense[] = "/tmp/guest-nonsense-XXXXXX";

static void *exec_often(void *unused) {
    char *argv[] = {nonsense, NULL}, *envp[] = {NULL};
    while (!stop) CHECK_ERRNO(execve(nonsense, argv, envp), -1, ENOEXEC);
    return unused;
}

int main(void) {
    int fd = mkstemp(nonsense);
    CHECK(fd >= 0 && write(fd, "no program\n", 11) == 11 && fchmod(fd, 0700) == 0 && close(fd) == 0);
    unsigned char *p = map_anon(64 * MIB);
    fill(p, 64 * MIB, 1);
    pthread_t thread = start(exec_often, NULL);
    for (int i = 0; i < 30; i++) {
        usleep(300 * i);
        pid_t pid = fork();
        CHECK(pid >= 0);
        if (pid == 0) {
            unsigned char *q = map_anon(3 * MIB);
            CHECK(all_zero(q, 3 * MIB));
            _exit(3);
        }
        CHECK(wait_20_s_for(pid) == 3);
    }
    stop = 1;
    CHECK(pthread_join(thread, NULL) == 0);
    CHECK(unlink(nonsense) == 0);
    return ok();
}

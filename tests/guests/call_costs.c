/* A program in phases, for counting the system calls of each: getpgid(0) begins the next one. */
#include "guest.h"
#include <spawn.h>

extern char **environ;

static void collect(pid_t child, int expected) {
    int status;
    CHECK(child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == expected);
}

int main(void) {
    char *const argv[] = {"true", NULL};
    memset(map_anon(8 * MIB), 1, 8 * MIB);

    getpgid(0); /* fork-exit */
    pid_t child = fork();
    if (child == 0) _exit(7);
    collect(child, 7);

    getpgid(0); /* failing-exec: in this process, as shells and make look along PATH */
    for (int i = 0; i < 11; i++) CHECK_ERRNO(execve("/nowhere/true", argv, environ), -1, ENOENT);

    getpgid(0); /* fork-failing-exec */
    child = fork();
    if (child == 0) {
        execve("/nowhere/true", argv, environ);
        _exit(7);
    }
    collect(child, 7);

    getpgid(0); /* spawn */
    CHECK(posix_spawn(&child, "/bin/true", NULL, NULL, argv, environ) == 0);
    collect(child, 0);

    getpgid(0); /* memory */
    for (int i = 0; i < 50; i++) {
        unsigned char *p = map_anon(MIB);
        memset(p, 1, MIB);
        CHECK(mprotect(p, PAGE, PROT_READ) == 0 && madvise(p, MIB, MADV_DONTNEED) == 0 && munmap(p, MIB) == 0);
        void *q = malloc(300 * KIB);
        memset(q, 1, 300 * KIB);
        free(q);
    }

    getpgid(0); /* exit */
    _exit(0);
}

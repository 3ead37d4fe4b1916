/* execveat with AT_EXECVE_CHECK (Linux 6.14) says whether a file could be executed, and the program goes on. Regression: the
 * answer was -1 without an error. */
#include "guest.h"

#ifndef AT_EXECVE_CHECK
#define AT_EXECVE_CHECK 0x10000
#endif

extern char **environ;

int main(void) {
    char *words[] = {"true", NULL};
    int shell = open("/bin/sh", O_RDONLY | O_CLOEXEC), data = open("/etc/passwd", O_RDONLY | O_CLOEXEC);
    CHECK(shell >= 0 && data >= 0);
    if (execveat(shell, "", words, environ, AT_EMPTY_PATH | AT_EXECVE_CHECK) != 0) { /* an older kernel */
        CHECK(errno == EINVAL);
        return ok();
    }
    CHECK(execveat(AT_FDCWD, "/bin/sh", words, environ, AT_EXECVE_CHECK) == 0);
    CHECK_ERRNO(execveat(data, "", words, environ, AT_EMPTY_PATH | AT_EXECVE_CHECK), -1, EACCES);
    CHECK_ERRNO(execveat(AT_FDCWD, "/nonexistent", words, environ, AT_EXECVE_CHECK), -1, ENOENT);
    CHECK_ERRNO(execveat(AT_FDCWD, "/nonexistent", words, environ, 0), -1, ENOENT);
    return ok();
}

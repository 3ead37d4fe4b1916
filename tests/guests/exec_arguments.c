/* exec with pointers into nowhere: EFAULT, from every function, before and after anything else. Regression: under a policy that is not
 * inherited over exec, the library read the environment itself, and crashed. */
#include "guest.h"

int main(void) {
    char *arguments[] = {"true", NULL}, *broken[] = {(char *)8, NULL};
    char *half[] = {"A=1", (char *)16, NULL};
    char **nowhere = (char **)(uintptr_t)1;
    int fd = open("/bin/true", O_RDONLY);
    CHECK(fd >= 0);
    asm("" : "+r"(nowhere)); /* so that the compiler does not know */
    CHECK_ERRNO(execve("/bin/true", arguments, nowhere), -1, EFAULT);
    CHECK_ERRNO(execve("/bin/true", arguments, broken), -1, EFAULT);
    CHECK_ERRNO(execve("/bin/true", arguments, half), -1, EFAULT);
    CHECK_ERRNO(execve("/bin/true", nowhere, arguments), -1, EFAULT);
    CHECK_ERRNO(execve((char *)nowhere, arguments, arguments), -1, EFAULT);
    CHECK_ERRNO(fexecve(fd, arguments, broken), -1, EFAULT);
    CHECK_ERRNO(execve("/nonexistent", arguments, nowhere), -1, ENOENT);
    CHECK_ERRNO(execve("/etc/passwd", arguments, nowhere), -1, EACCES);
    pid_t child = fork();
    if (child == 0) {
        CHECK_ERRNO(execve("/bin/true", arguments, half), -1, EFAULT);
        execve("/bin/true", arguments, NULL);
        _exit(9);
    }
    CHECK(wait_for(child) == 0);
    return ok();
}

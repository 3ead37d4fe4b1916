/* posix_spawn, system and popen: helpers built on CLONE_VM|CLONE_VFORK with a stack they mmap themselves. */
#include "guest.h"
#include <spawn.h>

extern char **environ;

int main(void) {
    char *const argv[] = {"sh", "-c", "exit 7", NULL};
    for (int i = 0; i < 5; i++) {
        pid_t pid;
        CHECK(posix_spawn(&pid, "/bin/sh", NULL, NULL, argv, environ) == 0);
        CHECK(wait_for(pid) == 7);
        CHECK(posix_spawn(&pid, "/nonexistent/program", NULL, NULL, argv, environ) == ENOENT);
        CHECK(WEXITSTATUS(system("exit 5")) == 5);
        churn(i + 1, 100, 300 * KIB);
    }
    FILE *pipe = popen("echo one; echo two", "r");
    char line[16];
    CHECK(pipe && fgets(line, sizeof line, pipe) && strcmp(line, "one\n") == 0);
    CHECK(fgets(line, sizeof line, pipe) && strcmp(line, "two\n") == 0);
    CHECK(pclose(pipe) == 0);
    return ok();
}

/* Double fork: the grandchild outlives its parent in a session of its own, and still allocates. */
#include "guest.h"

int main(void) {
    int pipe_ends[2];
    CHECK(pipe(pipe_ends) == 0);
    pid_t pid = fork();
    if (pid == 0) {
        CHECK(setsid() > 0);
        pid_t inner = fork();
        if (inner != 0) _exit(inner < 0);
        close(pipe_ends[0]);
        churn(1, 500, 300 * KIB);
        CHECK(write(pipe_ends[1], "d", 1) == 1);
        exit(0);
    }
    CHECK(wait_for(pid) == 0);
    close(pipe_ends[1]);
    char got;
    CHECK(read(pipe_ends[0], &got, 1) == 1 && got == 'd');
    CHECK(read(pipe_ends[0], &got, 1) == 0); /* end of file: the daemon is gone */
    return ok();
}

/* vfork and posix_spawn borrow the parent's memory; exec begins anew, under the policy again. */
#include "frames.h"
#include <spawn.h>

extern char **environ;

static void work(size_t pages) {
    unsigned char *p = map_anon(pages * PAGE);
    write_tags(p, pages, 2);
    check_tags(p, pages, 2);
    CHECK_PLACED(p, pages);
    churn(3, 100, 200 * KIB);
    CHECK(munmap(p, pages * PAGE) == 0);
}

int main(int argc, char **argv) {
    char *again[] = {argv[0], "image", NULL};
    if (argc > 1) {
        work(200);
        return 17;
    }
    unsigned char *p = map_anon(300 * PAGE);
    write_tags(p, 300, 1);
    for (int i = 0; i < 5; i++) {
        volatile int in_child = 0;
        pid_t pid = vfork();
        if (pid == 0) {
            in_child = 1;
            execv("/proc/self/exe", again);
            _exit(99);
        }
        CHECK(in_child == 1 && wait_for(pid) == 17);
        CHECK(posix_spawn(&pid, "/proc/self/exe", NULL, NULL, again, environ) == 0 && wait_for(pid) == 17);
        pid = vfork();
        if (pid == 0) _exit(18); /* no exec at all */
        CHECK(wait_for(pid) == 18);
        pid = vfork();
        if (pid == 0) { /* the child touches the parent's fresh memory before it goes */
            write_tags(p, 300, 1);
            _exit(19);
        }
        CHECK(wait_for(pid) == 19);
        check_tags(p, 300, 1);
        CHECK_PLACED(p, 300);
        CHECK(madvise(p, 300 * PAGE, MADV_DONTNEED) == 0);
        write_tags(p, 300, 1);
        CHECK(system("exit 7") == 7 << 8);
        work(100);
    }
    if (fork() == 0) {
        execv("/proc/self/exe", again);
        _exit(99);
    }
    int status;
    CHECK(wait(&status) > 0 && WEXITSTATUS(status) == 17);
    return ok();
}

/* Threads that the library may keep are no part of the program: signals sent to them change nothing, and the program's
 * memory keeps coming. */
#include "frames.h"
#include <dirent.h>

static int others(int number) {
    int count = 0;
    DIR *tasks = opendir("/proc/self/task");
    CHECK(tasks);
    for (struct dirent *entry; (entry = readdir(tasks));) {
        pid_t tid = atoi(entry->d_name);
        if (tid == 0 || tid == getpid()) continue;
        count++;
        if (number) CHECK(syscall(SYS_tgkill, getpid(), tid, number) == 0);
    }
    closedir(tasks);
    return count;
}

static void memory_comes(void) {
    unsigned char *p = map_anon(900 * PAGE);
    write_tags(p, 900, 1);
    check_tags(p, 900, 1);
    CHECK_PLACED(p, 900);
    CHECK(munmap(p, 900 * PAGE) == 0);
}

int main(void) {
    const int numbers[] = {SIGUSR1, SIGTERM, SIGINT, SIGHUP, SIGALRM, SIGCHLD, SIGPROF, SIGPIPE, SIGSYS, SIGTRAP,
                           SIGRTMIN, SIGRTMIN + 1, SIGRTMAX, 32, 33};
    memory_comes();
    if (policy.known) CHECK(others(0) > 0); /* or there is nothing to check */
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        others(numbers[i]);
        memory_comes();
    }
    return ok();
}

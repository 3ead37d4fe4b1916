/* Prints nanoseconds a turn, the median of many: "fork": fork and _exit; "spawn": posix_spawn of the program named; "execvp": a program
 * that is in none of PATH's directories, with 200 MiB in memory. */
#include "guest.h"
#include <spawn.h>
#include <time.h>

static uint64_t now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

static int by_value(const void *a, const void *b) {
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

int main(int argc, char **argv) {
    enum { TURNS = 400 };
    static uint64_t times[TURNS];
    CHECK(argc > 1);
    if (strcmp(argv[1], "execvp") == 0) memset(map_anon(200 * MIB), 1, 200 * MIB);
    setenv("PATH", "/a:/b:/c:/d:/e:/f:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin", 1);
    for (int i = 0; i < TURNS; i++) {
        uint64_t from = now();
        pid_t child;
        if (strcmp(argv[1], "fork") == 0) {
            if ((child = fork()) == 0) _exit(0);
            CHECK(wait_for(child) == 0);
        } else if (strcmp(argv[1], "spawn") == 0) {
            char *const next[] = {argv[2], NULL};
            CHECK(argc > 2 && posix_spawn(&child, argv[2], NULL, NULL, next, environ) == 0);
            CHECK(wait_for(child) == 0);
        } else {
            char *const next[] = {"nobody-has-this", NULL};
            CHECK_ERRNO(execvp(next[0], next), -1, ENOENT);
        }
        times[i] = now() - from;
    }
    qsort(times, TURNS, sizeof *times, by_value);
    printf("%lu\n", (unsigned long)times[TURNS / 2]);
    return 0;
}

/* Nanoseconds for starting processes, the median of many: FORM is fork (fork + _exit), spawn (posix_spawn of true) or
 * execvp (a program that is in none of the directories of PATH).
 * spawning FORM TIMES RESIDENT_MIB TRUE OUT */
#define _GNU_SOURCE
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

extern char **environ;

static long now(void) {
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return at.tv_sec * 1000000000L + at.tv_nsec;
}

static int ascending(const void *a, const void *b) { return (*(long *)a > *(long *)b) - (*(long *)a < *(long *)b); }

static void die(const char *what) {
    perror(what);
    exit(1);
}

int main(int argc, char **argv) {
    if (argc != 6) return 2;
    int times = atoi(argv[2]);
    size_t resident = (size_t)atoi(argv[3]) << 20;
    char *const words[] = {"true", NULL};
    long *taken = calloc(times, sizeof *taken);
    if (resident) {
        char *p = mmap(NULL, resident, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (p == MAP_FAILED) die("mmap");
        memset(p, 1, resident);
    }
    for (int i = 0; i < times; i++) {
        pid_t child = 0;
        int status;
        long begin = now();
        if (strcmp(argv[1], "execvp") == 0) {

            if (execvp("no-such-program", words) == 0) return 1;
            taken[i] = now() - begin;
            continue;
        }
        if (strcmp(argv[1], "fork") == 0) {
            child = fork();
            if (child == 0) _exit(0);
        } else if (posix_spawn(&child, argv[4], NULL, NULL, words, environ)) {
            die("posix_spawn");
        }
        if (child < 0 || waitpid(child, &status, 0) != child || status != 0) die("child");
        taken[i] = now() - begin;
    }
    qsort(taken, times, sizeof *taken, ascending);
    FILE *out = fopen(argv[5], "w");
    if (!out || fprintf(out, "%ld\n", taken[times / 2]) < 0 || fclose(out)) die(argv[5]);
    return 0;
}

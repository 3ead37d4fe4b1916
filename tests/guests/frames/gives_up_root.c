/* A program that begins as root and becomes somebody else for good: no thread of its process keeps root's user, groups or
 * capabilities, and its memory works as before. What the process may be asked (core dumps, debuggers) is as it was. */
#include "frames.h"
#include <dirent.h>
#include <grp.h>
#include <sys/prctl.h>

enum { USER = 65533, GROUP = 65532 };

/* What a line of /proc/self/task/TID/status says of a thread, which is no more than the program has. */
static void check_line(const char *line, const char *thread) {
    unsigned long ids[4];
    unsigned long long set;
    if (sscanf(line, "Uid: %lu %lu %lu %lu", &ids[0], &ids[1], &ids[2], &ids[3]) == 4 ||
        sscanf(line, "Gid: %lu %lu %lu %lu", &ids[0], &ids[1], &ids[2], &ids[3]) == 4) {
        for (int i = 0; i < 4; i++)
            if (ids[i] < 65000) FAIL("thread %s keeps an id: %s", thread, line);
    } else if (sscanf(line, "CapInh: %llx", &set) == 1 || sscanf(line, "CapPrm: %llx", &set) == 1 ||
               sscanf(line, "CapEff: %llx", &set) == 1 || sscanf(line, "CapAmb: %llx", &set) == 1) {
        if (set) FAIL("thread %s keeps capabilities: %s", thread, line);
    } else if (strncmp(line, "Groups:", 7) == 0) {
        if (strspn(line + 7, " \t\n") != strlen(line + 7)) FAIL("thread %s keeps groups: %s", thread, line);
    }
}

static int check_threads(void) {
    DIR *tasks = opendir("/proc/self/task");
    struct dirent *entry;
    int threads = 0;
    CHECK(tasks);
    while ((entry = readdir(tasks))) {
        if (entry->d_name[0] == '.') continue;
        char path[300], line[1024];
        snprintf(path, sizeof path, "/proc/self/task/%s/status", entry->d_name);
        FILE *file = fopen(path, "r");
        CHECK(file);
        while (fgets(line, sizeof line, file)) check_line(line, entry->d_name);
        fclose(file);
        threads++;
    }
    closedir(tasks);
    return threads;
}

static void *sleeper(void *memory) {
    write_tags(memory, 100, 5);
    pause();
    return NULL;
}

int main(void) {
    CHECK(prctl(PR_GET_DUMPABLE, 0, 0, 0, 0) == 1);
    unsigned char *p = map_anon(4000 * PAGE);
    write_tags(p, 2000, 1);
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, sleeper, p + 3000 * PAGE) == 0);
    if (geteuid() != 0) return ok();
    CHECK(setgroups(0, NULL) == 0 && setresgid(GROUP, GROUP, GROUP) == 0 && setresuid(USER, USER, USER) == 0);
    write_tags(p + 2000 * PAGE, 1, 2001); /* under `pin` the handler follows with the next fault */
    int threads = check_threads();
    if (policy.known && threads < 3) FAIL("%d threads: where is the one that places frames?", threads);
    write_tags(p + 2000 * PAGE, 1000, 2001);
    check_tags(p, 2000, 1);
    check_tags(p + 2000 * PAGE, 1000, 2001);
    CHECK(munmap(p, 3000 * PAGE) == 0);
    pid_t child = fork(); /* with an engine of its own, by the launcher's hand */
    if (child == 0) {
        unsigned char *q = map_anon(500 * PAGE);
        write_tags(q, 500, 3);
        check_tags(q, 500, 3);
        check_threads();
        _exit(0);
    }
    CHECK(wait_for(child) == 0);
    return ok();
}

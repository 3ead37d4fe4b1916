/* Programs started by posix_spawn leave nothing behind in the memory of the process that starts them.
 * Regression: each left a copy of its environment where the library is not passed on. */
#include "guest.h"
#include <spawn.h>

extern char **environ;

static long size_kib(void) {
    FILE *file = fopen("/proc/self/status", "r");
    char line[200];
    long kib = -1;
    CHECK(file);
    while (fgets(line, sizeof line, file)) sscanf(line, "VmSize: %ld", &kib);
    CHECK(fclose(file) == 0);
    return kib;
}

static void spawn(int times) {
    char *const argv[] = {"true", NULL};
    for (int i = 0; i < times; i++) {
        pid_t pid;
        CHECK(posix_spawn(&pid, i % 8 ? "/bin/true" : "/nonexistent/program", NULL, NULL, argv, environ) == (i % 8 ? 0 : ENOENT));
        if (i % 8) CHECK(wait_for(pid) == 0);
    }
}

int main(void) {
    spawn(20);
    long before = size_kib();
    spawn(100);
    const char *pool = getenv("GUEST_POOL_BYTES"); /* what a pool of frames may grow to meanwhile */
    if (size_kib() > before + 64 + (pool ? strtol(pool, NULL, 10) >> 10 : 0)) FAIL("%ld KiB more", size_kib() - before);
    return ok();
}

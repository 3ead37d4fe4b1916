/* Children of children of children take no more address space and no more mappings than the first of them.
 * Regression: each generation kept the guest files of all its forebears mapped: half a MiB and one mapping each; and where a fork met
 * another thread in a memory call, the tables, too, that the child had made anew. */
#include "guest.h"

enum { FIRST = 5, LAST = 45, MAPPINGS = 8 };

static void count(long *mappings, long *kib) {
    static char line[4096];
    FILE *file = fopen("/proc/self/maps", "r");
    CHECK(file);
    for (*mappings = 0; fgets(line, sizeof line, file);) ++*mappings;
    fclose(file);
    file = fopen("/proc/self/status", "r");
    CHECK(file);
    while (fgets(line, sizeof line, file))
        if (sscanf(line, "VmSize: %ld", kib) == 1) break;
    fclose(file);
}

static volatile int stop;

static void *use_memory_all_the_time(void *unused) {
    (void)unused;
    while (!stop) CHECK(munmap(map_anon(300 * KIB), 300 * KIB) == 0);
    return NULL;
}

static void use_memory(void) { CHECK(munmap(map_anon(64 * KIB), 64 * KIB) == 0); }

static void descend(int beside_thread) {
    long mappings = 0, kib = 0, now, kib_now;
    for (int generation = 0;; generation++) {
        use_memory();
        if (generation == FIRST) count(&mappings, &kib);
        if (generation == LAST) break;
        if (beside_thread) {
            start(use_memory_all_the_time, NULL);
            usleep(3000 + 37 * generation);
        }
        pid_t child = fork();
        stop = child != 0;
        if (child != 0) _exit(wait_for(child));
    }
    count(&now, &kib_now);
    if (beside_thread) kib += 16 * 1024; /* the stacks of threads that a child does not have */
    if (now > mappings + MAPPINGS) FAIL("%ld mappings in generation %d, %ld in generation %d", mappings, FIRST, now, LAST);
    if (kib_now > kib + 4096) FAIL("%ld KiB in generation %d, %ld in generation %d", kib, FIRST, kib_now, LAST);
    _exit(0);
}

int main(int argc, char **argv) {
    (void)argv;
    pid_t child = fork();
    if (child == 0) descend(argc > 1);
    CHECK(wait_for(child) == 0);
    return ok();
}

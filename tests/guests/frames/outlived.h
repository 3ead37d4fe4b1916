/* A child that shares the memory of a program (clone with CLONE_VM) and outlives it goes on, also with pages that it
 * touches first. */
#ifndef OUTLIVED_H
#define OUTLIVED_H
#include "frames.h"
#include <poll.h>
#include <sched.h>
#include <sys/resource.h>

static const size_t FRESH = 4 * MIB;
static unsigned char *fresh;
static int parents_end[2], done[2];

static int outlive(void *unused) {
    char byte = 'd';
    (void)unused;
    close(parents_end[1]);
    /* End of file: the parent has ended, or executed another program. */
    if (read(parents_end[0], &byte, 1) != 0) byte = 'r';
    for (size_t i = 0; i < FRESH; i += PAGE) fresh[i] = (unsigned char)(i / PAGE);
    for (size_t i = 0; i < FRESH; i += PAGE)
        if (fresh[i] != (unsigned char)(i / PAGE)) byte = 'w';
    _exit(write(done[1], &byte, 1) != 1);
}

static void parent(const char *how, void (*prepare)(void), pid_t *outliver) {
    static unsigned char stack[64 << 10] __attribute__((aligned(16)));
    char *const argv[] = {"true", NULL};
    fresh = map_anon(FRESH);
    map_anon(MIB)[0] = 1;
    if (prepare) prepare();
    *outliver = clone(outlive, stack + sizeof stack, CLONE_VM | SIGCHLD, NULL);
    CHECK(*outliver > 0);
    if (strcmp(how, "exec") == 0) {
        execv("/bin/true", argv);
        FAIL("execv");
    }
    _exit(0);
}

/* `how` the parent ends: "exit"; "exec": it executes another program; "no-file": it exits, and may write no files. It calls
 * `prepare` before it makes the child. */
static int is_outlived(const char *how, void (*prepare)(void)) {
    pid_t *outliver = mmap(NULL, PAGE, RW, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    struct rlimit usual;
    CHECK(outliver != MAP_FAILED && pipe2(parents_end, O_CLOEXEC) == 0 && pipe2(done, O_CLOEXEC) == 0);
    CHECK(getrlimit(RLIMIT_FSIZE, &usual) == 0);
    struct rlimit none = {0, usual.rlim_max};
    if (strcmp(how, "no-file") == 0) CHECK(setrlimit(RLIMIT_FSIZE, &none) == 0);
    pid_t child = fork();
    if (child == 0) parent(how, prepare, outliver);
    CHECK(child > 0 && setrlimit(RLIMIT_FSIZE, &usual) == 0);
    CHECK(close(parents_end[1]) == 0 && close(done[1]) == 0);
    CHECK(wait_20_s_for(child) == 0);
    struct pollfd end = {.fd = done[0], .events = POLLIN};
    int ended = poll(&end, 1, 30000);
    char byte = 0;
    if (ended == 1 && end.revents & POLLIN) CHECK(read(done[0], &byte, 1) == 1);
    if (byte == 'd') return ok();
    if (ended == 0) kill(*outliver, SIGKILL);
    FAIL(ended == 0    ? "the child that shares the memory does not go on"
         : byte == 0   ? "the child that shares the memory was killed"
         : byte == 'r' ? "the child that shares the memory could not read the pipe"
                       : "the child that shares the memory has wrong bytes");
}

#endif

/* A child that shares the program's memory (clone with CLONE_VM) outlives it. Regression: the child waited for ever for pages
 * that it touched first, since the thread that placed them had ended with its parent. */
#include "frames.h"
#include <poll.h>
#include <sched.h>

static const size_t BYTES = 4 * MIB;
static unsigned char *fresh;
static int parents_end[2], done[2];

static int outlive(void *unused) {
    char byte;
    (void)unused;
    close(parents_end[1]);
    /* End of file: the parent has ended. */
    if (read(parents_end[0], &byte, 1) != 0) _exit(1);
    for (size_t i = 0; i < BYTES; i += PAGE) fresh[i] = (unsigned char)(i / PAGE);
    for (size_t i = 0; i < BYTES; i += PAGE)
        if (fresh[i] != (unsigned char)(i / PAGE)) _exit(1);
    _exit(write(done[1], "d", 1) != 1);
}

static void parent(void) {
    static unsigned char stack[64 << 10] __attribute__((aligned(16)));
    fresh = map_anon(BYTES);
    map_anon(MIB)[0] = 1;
    CHECK(clone(outlive, stack + sizeof stack, CLONE_VM | SIGCHLD, NULL) > 0);
    _exit(0);
}

int main(void) {
    CHECK(pipe(parents_end) == 0 && pipe(done) == 0);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) parent();
    CHECK(close(parents_end[1]) == 0 && close(done[1]) == 0);
    int status = 0;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    struct pollfd end = {.fd = done[0], .events = POLLIN};
    CHECK(poll(&end, 1, 30000) == 1 && end.revents & POLLIN);
    return ok();
}

/* A profiler's signal handler can unwind the stack whenever it is called while the program maps and unmaps memory.
 * Regression: signals that arrived inside mmap were cut off from the program's functions. */
#include "guest.h"
#include <execinfo.h>
#include <sys/time.h>

enum { DEEPEST = 64, SAMPLES = 40 };

static void *outermost;
static volatile sig_atomic_t samples, cut_off;

static void sample(int signal_number) {
    void *frames[DEEPEST];
    int depth = backtrace(frames, DEEPEST);
    (void)signal_number;
    samples++;
    if (depth == 0 || frames[depth - 1] != outermost) cut_off++;
}

__attribute__((noinline)) static void map_and_unmap(void) {
    unsigned char *block = map_anon(64 * KIB);
    *block = 1;
    CHECK(munmap(block, 64 * KIB) == 0);
}

int main(void) {
    void *frames[DEEPEST];
    int depth = backtrace(frames, DEEPEST);
    CHECK(depth > 1);
    outermost = frames[depth - 1];
    struct sigaction act = {.sa_handler = sample, .sa_flags = SA_RESTART};
    const struct itimerval each_ms = {{0, 1000}, {0, 1000}};
    CHECK(sigaction(SIGPROF, &act, NULL) == 0 && setitimer(ITIMER_PROF, &each_ms, NULL) == 0);
    while (samples < SAMPLES) map_and_unmap();
    CHECK(cut_off == 0);
    return ok();
}

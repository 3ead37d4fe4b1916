/* Ends the process in the way named by the argument; the test checks how the parent sees it. */
#include "guest.h"

static void bye(void) { CHECK(write(1, "bye\n", 4) == 4); }
static void *exit_now(void *unused) {
    (void)unused;
    exit(23);
}
static void *busy(void *unused) {
    for (uint64_t seed = 1;; seed++) churn(seed, 50, 300 * KIB);
    return unused;
}

int main(int argc, char **argv) {
    const char *how = argc > 1 ? argv[1] : "";
    CHECK(atexit(bye) == 0);
    CHECK(at_quick_exit(bye) == 0);
    churn(1, 300, 300 * KIB);
    if (!strcmp(how, "return")) return 20;
    if (!strcmp(how, "exit")) exit(21);
    if (!strcmp(how, "_exit")) _exit(22);
    if (!strcmp(how, "quick_exit")) quick_exit(24);
    if (!strcmp(how, "abort")) abort();
    if (!strcmp(how, "kill")) raise(SIGKILL);
    if (!strcmp(how, "term")) raise(SIGTERM);
    if (!strcmp(how, "segv")) *(volatile int *)8 = 1;
    start(busy, NULL);
    if (!strcmp(how, "exit-while-busy")) {
        usleep(2000);
        exit(25);
    }
    if (!strcmp(how, "exit-from-thread")) {
        start(exit_now, NULL);
        pause();
    }
    FAIL("unknown way to die: %s", how);
}

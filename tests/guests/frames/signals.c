/* Signal handlers on stacks that nobody has touched yet, timers that interrupt faults, handlers that fault themselves. */
#include "frames.h"
#include <sys/time.h>

static volatile sig_atomic_t depth, ticks;
static unsigned char *memory;
static const size_t pages = 6000;
static size_t taken;

static void use_stack(size_t bytes) {
    volatile unsigned char deep[bytes];
    for (size_t i = 0; i < bytes; i += 512) CHECK((deep[i] = 1) == 1);
}

static void on_alternate_stack(int number, siginfo_t *info, void *context) {
    (void)info, (void)context;
    use_stack(40 * KIB);
    if (depth++ < 3) CHECK(raise(number) == 0);
}

static void fresh_alternate_stack(void) {
    for (int round = 0; round < 20; round++) {
        size_t bytes = 256 * KIB;
        stack_t stack = {.ss_sp = map_anon(bytes), .ss_size = bytes};
        struct sigaction act = {.sa_sigaction = on_alternate_stack, .sa_flags = SA_ONSTACK | SA_SIGINFO | SA_NODEFER};
        CHECK(sigaltstack(&stack, NULL) == 0 && sigaction(SIGUSR1, &act, NULL) == 0);
        depth = 0;
        CHECK(raise(SIGUSR1) == 0 && depth == 4);
        unsigned char *top = (unsigned char *)stack.ss_sp + bytes - 10 * PAGE;
        CHECK_PLACED(top, 10);
        stack_t off = {.ss_flags = SS_DISABLE};
        CHECK(sigaltstack(&off, NULL) == 0 && munmap(stack.ss_sp, bytes) == 0);
    }
}

/* A handler for SIGSEGV repairs what a thread touched, on a fresh stack: garbage collectors do that. */
static unsigned char *guarded;
static void open_page(int number, siginfo_t *info, void *context) {
    (void)number, (void)context;
    unsigned char *page = (unsigned char *)((uintptr_t)info->si_addr & ~(PAGE - 1));
    CHECK(page >= guarded && page < guarded + 64 * PAGE);
    CHECK(mprotect(page, PAGE, RW) == 0);
}

static void write_barrier(void) {
    guarded = mmap(NULL, 64 * PAGE, PROT_NONE, ANON, -1, 0);
    CHECK(guarded != MAP_FAILED);
    stack_t stack = {.ss_sp = map_anon(64 * KIB), .ss_size = 64 * KIB};
    struct sigaction act = {.sa_sigaction = open_page, .sa_flags = SA_ONSTACK | SA_SIGINFO}, old;
    CHECK(sigaltstack(&stack, NULL) == 0 && sigaction(SIGSEGV, &act, &old) == 0);
    write_tags(guarded, 64, 77);
    check_tags(guarded, 64, 77);
    CHECK_PLACED(guarded, 64);
    CHECK(sigaction(SIGSEGV, &old, NULL) == 0);
}

static void on_tick(int number) {
    (void)number;
    ticks++;
    if (taken < pages / 2) memory[(pages / 2 + taken++) * PAGE] = 3; /* the upper half is the handler's */
}

static void timers_interrupt_faults(void) {
    memory = map_anon(pages * PAGE);
    struct sigaction act = {.sa_handler = on_tick, .sa_flags = SA_RESTART};
    struct itimerval often = {{0, 500}, {0, 500}}, off = {{0, 0}, {0, 0}};
    CHECK(sigaction(SIGALRM, &act, NULL) == 0 && setitimer(ITIMER_REAL, &often, NULL) == 0);
    write_tags(memory, pages / 2, 5);
    while (ticks < 20) {}
    CHECK(setitimer(ITIMER_REAL, &off, NULL) == 0);
    check_tags(memory, pages / 2, 5);
    CHECK_PLACED(memory, pages / 2 + taken);
}

/* The library's own threads take no signal of the program's, and its handlers run on the program's threads only. */
static pthread_t main_thread;
static volatile sig_atomic_t seen;
static void who(int number) {
    (void)number;
    if (!pthread_equal(pthread_self(), main_thread)) FAIL("a signal came to another thread");
    seen++;
}

static void signals_stay_with_the_program(void) {
    main_thread = pthread_self();
    struct sigaction act = {.sa_handler = who};
    for (int number = 1; number < 32; number++) {
        if (number == SIGKILL || number == SIGSTOP || number == SIGALRM) continue;
        CHECK(sigaction(number, &act, NULL) == 0);
        int before = seen;
        CHECK(kill(getpid(), number) == 0);
        CHECK(seen == before + 1);
        unsigned char *p = map_anon(20 * PAGE);
        write_tags(p, 20, 1);
        CHECK_PLACED(p, 20);
        CHECK(munmap(p, 20 * PAGE) == 0);
    }
}

int main(void) {
    fresh_alternate_stack();
    write_barrier();
    timers_interrupt_faults();
    signals_stay_with_the_program();
    return ok();
}

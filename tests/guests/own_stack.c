/* Little stack is enough: _exit in a signal handler on an alternate stack of 8 KiB, and memory calls, exec and _exit from a stack of
 * 4 KiB. The high-water mark of each is printed by "measure", for comparison with the same program left alone. */
#include "guest.h"
#include <sys/ucontext.h>
#include <ucontext.h>
#include <dlfcn.h>

#define SMALL (4 * KIB)
#define ROOM (16 * KIB)

static void on_segv(int number) {
    (void)number;
    _exit(42);
}

/* A child that dies of a fault and leaves from the handler on its alternate stack. */
static void leave_from_handler(void) {
    pid_t child = fork();
    if (child == 0) {
        unsigned char *block = map_anon(2 * PAGE);
        CHECK(mprotect(block, PAGE, PROT_NONE) == 0);
        stack_t stack = {.ss_sp = block + PAGE, .ss_size = PAGE};
        size_t bytes = 8 * KIB;
        unsigned char *area = map_anon(bytes + PAGE);
        CHECK(mprotect(area, PAGE, PROT_NONE) == 0);
        stack.ss_sp = area + PAGE;
        stack.ss_size = bytes;
        CHECK(sigaltstack(&stack, NULL) == 0);
        struct sigaction act = {.sa_handler = on_segv, .sa_flags = SA_ONSTACK};
        CHECK(sigaction(SIGSEGV, &act, NULL) == 0);
        *(volatile int *)block = 1;
    }
    CHECK(wait_for(child) == 42);
}

static ucontext_t home, away;
static void (*job)(void);
static unsigned char *block;

static void run_job(void) {
    job();
    swapcontext(&away, &home);
}

/* The bytes of a painted stack that `what` uses. */
static size_t used_by(void (*what)(void)) {
    static unsigned char *stack;
    if (!stack) stack = map_anon(ROOM);
    memset(stack, 0xa5, ROOM);
    CHECK(getcontext(&away) == 0);
    away.uc_stack = (stack_t){.ss_sp = stack, .ss_size = ROOM};
    away.uc_link = &home;
    job = what;
    makecontext(&away, run_job, 0);
    CHECK(swapcontext(&home, &away) == 0);
    size_t clean = 0;
    while (clean < ROOM && stack[clean] == 0xa5) clean++;
    return ROOM - clean;
}

static void nothing(void) {}
static void do_mmap(void) { block = mmap(NULL, 6 * MIB, RW, ANON, -1, 0); }
static void do_munmap(void) { munmap(block, 6 * MIB); }
static void do_munmap_part(void) { munmap(block + MIB, 3 * MIB); }
static void do_mprotect(void) { mprotect(block + 64 * KIB, 64 * KIB, PROT_READ); }
static void do_madvise(void) { madvise(block + 64 * KIB, 3 * MIB, MADV_DONTNEED); }
static void do_mremap(void) { block = mremap(block, 6 * MIB, 9 * MIB, MREMAP_MAYMOVE); }
static void do_brk_up(void) { (void)!brk((char *)sbrk(0) + 3 * MIB); }
static void do_brk_down(void) { (void)!brk((char *)sbrk(0) - 3 * MIB); }
static void do_exec(void) {
    char *const argv[] = {"none", NULL};
    execve("/nonexistent/none", argv, environ);
    execve("/dev/null", argv, environ);
    execve("/etc/passwd", argv, environ);
}

static void touch(void) { memset(block, 1, 6 * MIB); }

struct call {
    const char *name;
    void (*before)(void), (*call)(void);
};

int main(int argc, char **argv) {
    (void)argv;
    const struct call calls[] = {
        {"mmap", NULL, do_mmap},           {"munmap", touch, do_munmap},     {"mmap-again", NULL, do_mmap},
        {"mprotect", touch, do_mprotect},  {"madvise", NULL, do_madvise},    {"munmap-part", NULL, do_munmap_part},
        {"mmap-more", NULL, do_mmap},      {"mremap", touch, do_mremap},     {"brk-up", NULL, do_brk_up},
        {"brk-down", NULL, do_brk_down},   {"exec", NULL, do_exec},
    };
    leave_from_handler();
    const size_t base = used_by(nothing);
    /* Each twice: binding a symbol the first time takes several KiB of its own, here as natively. */
    for (int turn = 0; turn < 2; turn++)
        for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
            if (calls[i].before) calls[i].before();
            size_t bytes = used_by(calls[i].call);
            if (turn == 1 && argc > 1) dprintf(2, "%s %zu\n", calls[i].name, bytes - base);
            if (turn == 1 && bytes > SMALL) FAIL("%s takes %zu bytes of stack", calls[i].name, bytes);
        }
    return ok();
}

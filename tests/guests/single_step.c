/* A program that steps through itself by the processor's trap flag, with a handler of SIGTRAP, steps across memory calls, fork and _exit.
 * Regression: the library did its work with all signals blocked, and the kernel ends a process in which it cannot deliver the trap. */
#include "guest.h"
#include <ucontext.h>

#ifdef __x86_64__
enum { TRAP_FLAG = 0x100 };
static volatile sig_atomic_t steps, insists;

static void on_trap(int number, siginfo_t *info, void *context) {
    (void)number, (void)info;
    steps++;
    /* The flag is set in the interrupted code as it is; many handlers set it each time all the same. */
    if (insists) ((ucontext_t *)context)->uc_mcontext.gregs[REG_EFL] |= TRAP_FLAG;
}

static void begin(void) { __asm__ volatile("pushfq; orq $0x100, (%%rsp); popfq" ::: "memory", "cc"); }

static void end(void) {
    insists = 0;
    __asm__ volatile("pushfq; andq $~0x100, (%%rsp); popfq" ::: "memory", "cc");
}

static int is_stepping(void) {
    uint64_t flags;
    __asm__ volatile("pushfq; pop %0" : "=r"(flags)::"memory");
    return (flags & TRAP_FLAG) != 0;
}

static void step_through_calls(int insist, int forks) {
    insists = insist;
    steps = 0;
    begin();
    unsigned char *p = mmap(NULL, 3 * MIB, RW, ANON, -1, 0);
    int goes_on = is_stepping();
    int protected = p == MAP_FAILED ? -1 : mprotect(p, 3 * MIB, PROT_READ);
    int advised = madvise(p, MIB, MADV_DONTNEED);
    unsigned char *moved = mremap(p, 3 * MIB, 5 * MIB, MREMAP_MAYMOVE);
    int unmapped = munmap(moved, 5 * MIB);
    void *heap = sbrk(PAGE);
    pid_t child = forks ? fork() : 0;
    if (forks && child == 0) _exit(is_stepping() ? 7 : 8);
    goes_on += is_stepping();
    end();
    CHECK(p != MAP_FAILED && protected == 0 && advised == 0 && moved != MAP_FAILED && unmapped == 0 && heap != (void *)-1);
    CHECK(!forks || wait_for(child) == 7);
    CHECK(goes_on == 2 && steps > 20);
}

int main(void) {
    struct sigaction act = {.sa_sigaction = on_trap, .sa_flags = SA_SIGINFO};
    CHECK(sigaction(SIGTRAP, &act, NULL) == 0);
    step_through_calls(0, 1);
    /* Without a fork: such a handler would run while the memory of the child is put in order (docs/preload.md). */
    step_through_calls(1, 0);

    /* The parent's own end, which is measured. */
    CHECK(ok() == 0);
    begin();
    _exit(0);
}
#else
int main(void) { return ok(); }
#endif

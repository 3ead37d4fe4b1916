/* A program that has its system calls sent to itself (syscall user dispatch, as emulators and sandboxes do): its handler of
 * SIGSYS makes those that it knows, and ends the program for any other. Regression: the library made calls of its own. */
#include "guest.h"

#ifdef __x86_64__
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <ucontext.h>

#ifndef PR_SET_SYSCALL_USER_DISPATCH
#define PR_SET_SYSCALL_USER_DISPATCH 59
#endif
#define DISPATCH_ON 1

/* All system calls outside of gate to gate_end are sent. */
asm(".pushsection .text\n"
    ".globl gate, gate_return, gate_end\n"
    "gate: mov %rdi, %rax; mov %rsi, %r11; mov (%r11), %rdi; mov 8(%r11), %rsi; mov 16(%r11), %rdx\n"
    "mov 24(%r11), %r10; mov 32(%r11), %r8; mov 40(%r11), %r9; syscall; ret\n"
    "gate_return: mov $15, %eax; syscall; nop\n" /* the kernel compares the address after a call */
    "gate_end: nop\n"
    ".popsection\n");
long gate(long number, const long *arguments);
extern char gate_return[], gate_end[];

static volatile int sent[512];
static volatile char selector; /* 1: send */

static void answer(int signal, siginfo_t *info, void *context) {
    static const int known[] = {SYS_mmap, SYS_munmap, SYS_mremap, SYS_mprotect, SYS_madvise, SYS_brk, SYS_write, SYS_exit_group};
    greg_t *registers = ((ucontext_t *)context)->uc_mcontext.gregs;
    long number = registers[REG_RAX];
    long arguments[] = {registers[REG_RDI], registers[REG_RSI], registers[REG_RDX],
                        registers[REG_R10], registers[REG_R8],  registers[REG_R9]};
    int knows = 0;
    (void)signal, (void)info;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) knows |= number == known[i];
    if (!knows) gate(SYS_exit_group, (long[]){77, 0, 0, 0, 0, 0});
    sent[number]++;
    registers[REG_RAX] = gate(number, arguments);
}

/* libc's sigaction would have handlers return by its own system call, which would be sent, too. */
static void install(void) {
    struct {
        void (*handler)(int, siginfo_t *, void *);
        unsigned long flags;
        void *restorer;
        unsigned long mask;
    } action = {answer, SA_SIGINFO | SA_NODEFER | 0x04000000, gate_return, 0};
    CHECK(gate(SYS_rt_sigaction, (long[]){SIGSYS, (long)&action, 0, 8, 0, 0}) == 0);
}

int main(void) {
    unsigned char *before = map_anon(5 * MIB);
    fill(before, 5 * MIB, 1);
    install();
    if (prctl(PR_SET_SYSCALL_USER_DISPATCH, DISPATCH_ON, (long)gate, gate_end - (char *)gate, &selector) != 0) return ok();
    selector = 1;
    unsigned char *p = map_anon(5 * MIB);
    fill(p, 5 * MIB, 2);
    p = mremap(p, 5 * MIB, 9 * MIB, MREMAP_MAYMOVE);
    CHECK(p != MAP_FAILED && holds(p, 5 * MIB, 2) && holds(before, 5 * MIB, 1));
    CHECK(mprotect(p, MIB, PROT_READ) == 0 && madvise(p + MIB, MIB, MADV_DONTNEED) == 0);
    CHECK(munmap(p, 9 * MIB) == 0);
    CHECK(munmap(before, 5 * MIB) == 0);
    CHECK(sent[SYS_mmap] == 1 && sent[SYS_mremap] == 1 && sent[SYS_mprotect] == 1 && sent[SYS_madvise] == 1);
    CHECK(sent[SYS_munmap] == 2);
    free(memset(malloc(MIB), 1, MIB));
    return ok();
}
#else
int main(void) { return ok(); }
#endif

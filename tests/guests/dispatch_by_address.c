/* A program that has its system calls sent to itself, but for those that libc makes, told by their addresses (syscall user
 * dispatch with libc's text as the range that passes). Regression: detoured calls came from the library's text, and were
 * sent. */
#include "guest.h"

#ifdef __x86_64__
#include <link.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <ucontext.h>

#ifndef PR_SET_SYSCALL_USER_DISPATCH
#define PR_SET_SYSCALL_USER_DISPATCH 59
#endif
#define DISPATCH_OFF 0
#define DISPATCH_ON 1

static volatile char selector; /* 1: send */
static volatile int sent, last;
static uintptr_t text, text_end;

/* A system call that libc does not make. */
static long own_getpid(void) {
    long result;
    __asm__ volatile("syscall" : "=a"(result) : "a"((long)SYS_getpid) : "rcx", "r11", "memory");
    return result;
}

static void answer(int signal, siginfo_t *info, void *context) {
    (void)signal;
    selector = 0;
    sent++;
    last = info->si_syscall;
    ((ucontext_t *)context)->uc_mcontext.gregs[REG_RAX] = 12345;
}

static int find_text(struct dl_phdr_info *info, size_t size, void *within) {
    (void)size;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *part = &info->dlpi_phdr[i];
        uintptr_t from = info->dlpi_addr + part->p_vaddr, to = from + part->p_memsz;
        if (part->p_type != PT_LOAD || (uintptr_t)within < from || (uintptr_t)within >= to) continue;
        text = from & ~(PAGE - 1);
        text_end = to;
        return 1;
    }
    return 0;
}

int main(void) {
    struct sigaction action = {.sa_sigaction = answer, .sa_flags = SA_SIGINFO};
    CHECK(sigaction(SIGSYS, &action, NULL) == 0);
    CHECK(dl_iterate_phdr(find_text, (void *)getppid));
    pid_t me = getpid();
    unsigned char *p = map_anon(5 * MIB);
    fill(p, 5 * MIB, 1);
    if (prctl(PR_SET_SYSCALL_USER_DISPATCH, DISPATCH_ON, text, text_end - text, &selector) != 0) return ok();
    selector = 1;
    CHECK(syscall(SYS_getpid) == me && sent == 0);
    CHECK_ERRNO(syscall(SYS_close, -1), -1, EBADF);
    unsigned char *q = mmap(NULL, MIB, RW, ANON, -1, 0);
    CHECK(q != MAP_FAILED && q[0] == 0 && sent == 0);
    CHECK(mprotect(q, PAGE, PROT_READ) == 0 && mprotect(q, PAGE, RW) == 0 && madvise(q, MIB, MADV_DONTNEED) == 0);
    CHECK_ERRNO(madvise(q + 1, PAGE, MADV_DONTNEED), -1, EINVAL);
    CHECK_ERRNO(munmap(q + 1, PAGE), -1, EINVAL);
    q = mremap(q, MIB, 3 * MIB, MREMAP_MAYMOVE);
    CHECK(q != MAP_FAILED && q[0] == 0 && holds(p, 5 * MIB, 1));
    CHECK(munmap(q, 3 * MIB) == 0 && munmap(p, 5 * MIB) == 0);
    free(memset(malloc(3 * MIB), 1, 3 * MIB));
    CHECK(prctl(PR_GET_DUMPABLE) >= 0);
    CHECK(sent == 0);
    CHECK(own_getpid() == 12345 && sent == 1 && last == SYS_getpid);
    CHECK(prctl(PR_SET_SYSCALL_USER_DISPATCH, DISPATCH_OFF, 0, 0, 0) == 0);
    CHECK(own_getpid() == me);
    return ok();
}
#else
int main(void) { return ok(); }
#endif

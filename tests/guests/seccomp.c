/* A program that locks itself in with seccomp. Argument "errno": opening files and process control fail with EPERM
 * from then on (containers, systemd). "kill": only what memory, signals and exit need is allowed, the rest kills. */
#include "guest.h"
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#define LOAD(field) BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, field))
#define ANSWER(number, what) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 1), BPF_STMT(BPF_RET | BPF_K, what)
#define ALLOW(number) ANSWER(number, SECCOMP_RET_ALLOW)
#define DENY(number) ANSWER(number, SECCOMP_RET_ERRNO | EPERM)

static void install(struct sock_filter *filter, size_t count) {
    struct sock_fprog program = {.len = (unsigned short)count, .filter = filter};
    CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
    CHECK(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0);
}

int main(int argc, char **argv) {
    struct sock_filter deny[] = {
        LOAD(nr), DENY(SYS_openat), DENY(SYS_open), DENY(SYS_prctl), DENY(SYS_ptrace), DENY(SYS_process_vm_readv),
        DENY(SYS_process_madvise), DENY(SYS_userfaultfd), DENY(SYS_perf_event_open), DENY(SYS_memfd_create), DENY(SYS_clone3),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
    struct sock_filter kill[] = {
        LOAD(nr), ALLOW(SYS_mmap), ALLOW(SYS_munmap), ALLOW(SYS_mremap), ALLOW(SYS_mprotect), ALLOW(SYS_madvise),
        ALLOW(SYS_brk), ALLOW(SYS_write), ALLOW(SYS_exit_group), ALLOW(SYS_rt_sigreturn), ALLOW(SYS_futex),
        ALLOW(SYS_rt_sigprocmask), ALLOW(SYS_getpid), ALLOW(SYS_gettid), ALLOW(SYS_clock_gettime), ALLOW(SYS_getrandom),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS)};
    CHECK(argc == 2);
    if (strcmp(argv[1], "errno") == 0)
        install(deny, sizeof deny / sizeof *deny);
    else
        install(kill, sizeof kill / sizeof *kill);
    churn(1, 600, 300 * KIB);
    unsigned char *p = map_anon(5 * MIB);
    CHECK(all_zero(p, 5 * MIB));
    fill(p, 5 * MIB, 1);
    p = mremap(p, 5 * MIB, 9 * MIB, MREMAP_MAYMOVE);
    CHECK(p != MAP_FAILED && holds(p, 5 * MIB, 1));
    CHECK(mprotect(p, MIB, PROT_READ) == 0 && madvise(p + MIB, MIB, MADV_DONTNEED) == 0);
    CHECK(munmap(p, 9 * MIB) == 0);
    /* Under a filter, memory that malloc gave back by lowering the break may not come again. */
    CHECK(sbrk(MIB) != (void *)-1 || errno == ENOMEM);
    return ok();
}

/* From a seccomp filter on, a detoured call makes the program's own system call and no other. Arguments: "memory": only the
 * memory calls, read, write, exit, futex and getrandom are allowed, the rest kills; "break": not even the memory calls;
 * "probe": the program asks what filters there are, and sets none; "exec": another image under a tight filter; "exec-raw": likewise, past the C library. */
#include "guest.h"
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#define LOAD(field) BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, field))
#define ALLOW(number) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 1), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)
#define KILL BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS)

static int use_syscall, use_prctl;

static long raw_call(long number, long a, long b, long c, long d, long e) {
    register long r10 __asm__("r10") = d, r8 __asm__("r8") = e;
    long result;
    __asm__ volatile("syscall"
                     : "=a"(result)
                     : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8)
                     : "rcx", "r11", "memory");
    return result;
}

static void install(struct sock_filter *filter, size_t count) {
    struct sock_fprog program = {.len = (unsigned short)count, .filter = filter};
    CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
    if (use_syscall && use_prctl)
        CHECK(syscall(SYS_prctl, PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program, 0, 0) == 0);
    else if (use_syscall)
        CHECK(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program) == 0);
    else
        CHECK(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0);
}

static void use_memory(void) {
    churn(1, 600, 300 * KIB);
    unsigned char *p = map_anon(5 * MIB);
    CHECK(all_zero(p, 5 * MIB));
    fill(p, 5 * MIB, 1);
    p = mremap(p, 5 * MIB, 9 * MIB, MREMAP_MAYMOVE);
    CHECK(p != MAP_FAILED && holds(p, 5 * MIB, 1));
    CHECK(mprotect(p, MIB, PROT_READ) == 0 && madvise(p + MIB, MIB, MADV_DONTNEED) == 0);
    CHECK(all_zero(p + MIB, MIB));
    CHECK(munmap(p + 3 * MIB, PAGE) == 0 && munmap(p, 9 * MIB) == 0);
}

static void use_break(size_t bytes) {
    unsigned char *top = sbrk(0), *more = sbrk((intptr_t)bytes);
    CHECK(more == top && (unsigned char *)sbrk(0) == top + bytes);
    CHECK(all_zero(more, bytes));
    fill(more, bytes, 2);
    CHECK(brk(top) == 0 && sbrk(0) == top);
    /* What the program had comes again as new memory, or not at all. */
    more = sbrk(PAGE);
    CHECK(more == (void *)-1 ? errno == ENOMEM : more == top);
    if (more != top) return;
    unsigned char *page = (unsigned char *)(((uintptr_t)top + PAGE - 1) & ~(PAGE - 1));
    CHECK(all_zero(page, (size_t)(top + PAGE - page)) && brk(top) == 0);
}

static void before(unsigned char **kept) {
    *kept = map_anon(3 * MIB);
    fill(*kept, 3 * MIB, 3);
    CHECK(munmap(*kept + MIB, PAGE) == 0); /* a tile in pieces */
    use_memory();
}

int main(int argc, char **argv) {
    struct sock_filter memory[] = {LOAD(nr), ALLOW(SYS_mmap), ALLOW(SYS_munmap), ALLOW(SYS_mremap), ALLOW(SYS_mprotect),
                                   ALLOW(SYS_madvise), ALLOW(SYS_brk), ALLOW(SYS_read), ALLOW(SYS_write), ALLOW(SYS_exit),
                                   ALLOW(SYS_exit_group), ALLOW(SYS_futex), ALLOW(SYS_getrandom), KILL};
    struct sock_filter bare[] = {LOAD(nr), ALLOW(SYS_brk), ALLOW(SYS_write), ALLOW(SYS_exit_group), KILL};
    struct sock_filter exec[] = {LOAD(nr), ALLOW(SYS_execve), ALLOW(SYS_brk), ALLOW(SYS_openat), ALLOW(SYS_read),
                                 ALLOW(SYS_pread64), ALLOW(SYS_close), ALLOW(SYS_mmap), ALLOW(SYS_munmap), ALLOW(SYS_mprotect),
                                 ALLOW(SYS_newfstatat), ALLOW(SYS_fstat), ALLOW(SYS_access), ALLOW(SYS_arch_prctl),
                                 ALLOW(SYS_set_tid_address), ALLOW(SYS_set_robust_list), ALLOW(SYS_rseq), ALLOW(SYS_prlimit64),
                                 ALLOW(SYS_getrandom), ALLOW(SYS_write), ALLOW(SYS_exit_group), KILL};
    unsigned char *kept;
    CHECK(argc >= 2);
    use_syscall = argc > 2;
    use_prctl = use_syscall && strcmp(argv[2], "by-syscall-of-prctl") == 0;
    if (strcmp(argv[1], "image") == 0) {
        CHECK(map_anon(MIB) && malloc(MIB));
        return ok();
    }
    before(&kept);
    if (strcmp(argv[1], "memory") == 0) {
        install(memory, sizeof memory / sizeof *memory);
        use_break(8 * MIB);
        use_memory();
        CHECK(holds(kept, MIB, 3) && munmap(kept, 3 * MIB) == 0);
        return ok();
    }
    if (strcmp(argv[1], "break") == 0) {
        install(bare, sizeof bare / sizeof *bare);
        use_break(4 * MIB);
        CHECK(holds(kept, MIB, 3));
        _exit(ok());
    }
    if (strcmp(argv[1], "exec") == 0) {
        char *const next[] = {argv[0], "image", NULL};
        install(exec, sizeof exec / sizeof *exec);
        execve("/proc/self/nothing", next, environ);
        execve(argv[2], next, environ);
        FAIL("execve");
    }
    if (strcmp(argv[1], "exec-raw") == 0) {
        char *const next[] = {argv[0], "image", NULL};
        struct sock_fprog program = {.len = sizeof exec / sizeof *exec, .filter = exec};
        CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
        CHECK(raw_call(SYS_prctl, PR_SET_SECCOMP, SECCOMP_MODE_FILTER, (long)&program, 0, 0) == 0);
        raw_call(SYS_execve, (long)argv[2], (long)next, (long)environ, 0, 0);
        FAIL("execve");
    }
    CHECK(strcmp(argv[1], "probe") == 0); /* as libseccomp and others do at start */
    unsigned action = SECCOMP_RET_KILL_PROCESS;
    unsigned short sizes[3];
    CHECK(syscall(SYS_seccomp, SECCOMP_GET_ACTION_AVAIL, 0, &action) == 0);
    CHECK(syscall(SYS_seccomp, SECCOMP_GET_NOTIF_SIZES, 0, sizes) == 0);
    CHECK_ERRNO(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, NULL), -1, EFAULT);
    CHECK_ERRNO(syscall(SYS_seccomp, 0xffff, 0, NULL), -1, EINVAL);
    CHECK_ERRNO(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, NULL), -1, EFAULT);
    struct sock_filter wrong[] = {BPF_STMT(BPF_RET | BPF_A | 0x8000, 0)};
    struct sock_fprog program = {.len = 1, .filter = wrong};
    CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
    CHECK_ERRNO(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program), -1, EINVAL);
    use_memory();
    unsigned char *p = map_anon(64 * MIB);
    fill(p, 64 * MIB, 4);
    use_break(4 * MIB);
    return ok();
}

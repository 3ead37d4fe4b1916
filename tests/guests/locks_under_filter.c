/* Locks and seccomp filters. Regressions: when another thread installed a filter for all threads while this one waited in mlock, the
 * library made calls of its own after the lock, which the filter did not allow; mlock2(2) without flags became mlock(2). */
#include "guest.h"
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <linux/userfaultfd.h>
#include <stddef.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>

static unsigned char *p, page[4096] __attribute__((aligned(4096))) = {7};
static int uffd;
static volatile int is_over;

/* Answers one call with `what`, for all threads. */
static void filter(int number, unsigned what) {
    struct sock_filter steps[] = {BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
                                  BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)number, 0, 1), BPF_STMT(BPF_RET | BPF_K, what),
                                  BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
    struct sock_fprog program = {.len = sizeof steps / sizeof *steps, .filter = steps};
    CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
    CHECK(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &program) == 0);
}

static void keeps_mlock2(void) {
    unsigned char *block = map_anon(PAGE);
    filter(SYS_mlock, SECCOMP_RET_ERRNO | EXDEV);
    if (syscall(SYS_mlock2, block, PAGE, 0) != 0 && errno == EXDEV) FAIL("mlock2(2) without flags is another call");
    _exit(0);
}

static void locks(void) { CHECK(mlock(p, PAGE) == 0 || errno == ENOMEM || errno == EPERM); }
static void locks_by_syscall(void) { CHECK(syscall(SYS_mlock2, p, PAGE, 0) == 0 || errno == ENOMEM || errno == EPERM); }
static void locks_all(void) { CHECK(mlockall(MCL_CURRENT) == 0 || errno == ENOMEM || errno == EPERM); }
static void grows(void) {
    if (mlock(p, PAGE) != 0) return;
    CHECK(mremap(p, PAGE, 2 * PAGE, 0) == p || errno == EAGAIN || errno == ENOMEM);
}

static void *wait_in(void *call) {
    (*(void (**)(void))call)();
    is_over = 1;
    for (;;) pause(); /* (the end of a thread makes the call that kills) */
    return NULL;
}

/* `call` waits for pages that this thread provides; the filter comes with page `last`. */
static void filtered_meanwhile(void (*call)(void), int last) {
    uffd = (int)syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK);
    struct uffdio_api api = {.api = UFFD_API};
    if (uffd < 0 || ioctl(uffd, UFFDIO_API, &api) != 0) _exit(0); /* not for this user */
    p = map_anon(2 * PAGE);
    struct uffdio_register range = {.range = {(uintptr_t)p, PAGE}, .mode = UFFDIO_REGISTER_MODE_MISSING};
    if (ioctl(uffd, UFFDIO_REGISTER, &range) != 0) {
        CHECK(errno == EINVAL && has_reserved_pages());
        _exit(0);
    }
    CHECK(munmap(p + PAGE, PAGE) == 0);
    start(wait_in, &call);
    for (int served = 0; !is_over;) {
        struct uffd_msg message;
        if (read(uffd, &message, sizeof message) != sizeof message) continue;
        if (++served == last) filter(SYS_rt_sigprocmask, SECCOMP_RET_KILL_PROCESS);
        struct uffdio_copy copy = {.dst = message.arg.pagefault.address & ~(PAGE - 1), .src = (uintptr_t)page, .len = PAGE};
        if (ioctl(uffd, UFFDIO_COPY, &copy) != 0 && errno != EEXIST) FAIL("UFFDIO_COPY");
    }
    _exit(0);
}

int main(void) {
    const struct {
        void (*call)(void);
        int last;
    } calls[] = {{locks, 1}, {locks_by_syscall, 1}, {locks_all, 1}, {grows, 2}};
    pid_t child = fork();
    if (child == 0) keeps_mlock2();
    CHECK(wait_20_s_for(child) == 0);
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        child = fork();
        if (child == 0) filtered_meanwhile(calls[i].call, calls[i].last);
        if (wait_20_s_for(child) != 0) FAIL("case %zu", i);
    }
    return ok();
}

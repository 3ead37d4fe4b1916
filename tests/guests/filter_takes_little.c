/* What a program has locked, and the limits that it sets, count its own memory, also after a seccomp filter. Regression: the library had
 * mapped a GiB for the heap then: all of it was in memory under mlockall, and it counted against limits that the program set later. */
#include "guest.h"
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/resource.h>

static void install(void) {
    struct sock_filter all[] = {BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
    struct sock_fprog program = {.len = 1, .filter = all};
    CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0);
}

static void locked(int future) {
    if (mlockall(future) != 0) return; /* not for this user */
    long lock = status_kib("VmLck:"), resident = status_kib("VmRSS:");
    install();
    if (status_kib("VmLck:") > lock + 8 * (long)KIB) FAIL("%ld KiB locked, %ld before", status_kib("VmLck:"), lock);
    if (status_kib("VmRSS:") > resident + 8 * (long)KIB) FAIL("%ld KiB resident, %ld before", status_kib("VmRSS:"), resident);
    churn(1, 300, 300 * KIB);
    unsigned char *top = sbrk(0), *more = sbrk(256 * (intptr_t)KIB);
    CHECK(more == (void *)-1 ? errno == ENOMEM || errno == EAGAIN : more == top);
    if (more == top) fill(more, 256 * KIB, 1);
    if (more == top) CHECK(is_all(more, 256 * KIB, " lo", " lo"));
}

static void lock_present_and_future(void) { locked(MCL_CURRENT | MCL_FUTURE); }
static void lock_future(void) { locked(MCL_FUTURE); }

static void limit_addresses(void) {
    struct rlimit limit = {.rlim_cur = 512 * MIB, .rlim_max = 512 * MIB};
    install();
    CHECK(setrlimit(RLIMIT_AS, &limit) == 0);
    unsigned char *p = map_anon(16 * MIB);
    fill(p, 16 * MIB, 2);
    churn(2, 300, 300 * KIB);
    CHECK(holds(p, 16 * MIB, 2) && munmap(p, 16 * MIB) == 0);
}

static void in_child(void (*what)(void), int meets_the_library) {
    pid_t child = fork();
    if (child == 0) {
        if (meets_the_library) work_on_memory();
        what();
        _exit(7);
    }
    CHECK(wait_for(child) == 7);
}

int main(void) {
    for (int meets = 0; meets < 2; meets++) {
        in_child(lock_present_and_future, meets);
        in_child(lock_future, meets);
        in_child(limit_addresses, meets);
    }
    limit_addresses();
    return ok();
}

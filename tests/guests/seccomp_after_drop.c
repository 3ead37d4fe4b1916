/* A forked child whose first call installs a seccomp filter can raise its break and use what it got, whatever the parent did to the
 * memory above the break before. Regression: after mlockall, or a lock, a name or a mapping beyond the break, which make the library
 * unmap what it had mapped there in advance, the child still counted on that memory (SIGSEGV). */
#include "guest.h"
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>

#define NAME_MEMORY 0x53564d41

static struct sock_filter all = BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
static struct sock_fprog filter = {1, &all};

static unsigned char *top(void) { return (unsigned char *)(((uintptr_t)sbrk(0) + PAGE - 1) & ~(PAGE - 1)); }

/* (Whether these calls succeed depends on limits, rights and the kernel; the library prepares for them in any case.) */
static void nothing(void) {}
static void lock_all(void) {
    mlockall(MCL_CURRENT);
    munlockall();
}
static void lock_future(void) {
    mlockall(MCL_CURRENT | MCL_FUTURE);
    munlockall();
}
static void lock_beyond(void) {
    mlock(top() - PAGE, 3 * PAGE);
    munlock(top() - PAGE, PAGE);
}
static void name_beyond(void) { prctl(NAME_MEMORY, 0, top() - PAGE, 2 * PAGE, "x"); }
static void map_beyond(void) {
    unsigned char *p = top() + PAGE;
    if (mmap(p, PAGE, RW, ANON | MAP_FIXED_NOREPLACE, -1, 0) == p) CHECK(munmap(p, PAGE) == 0);
}

static void raise_after_filter(void) {
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter)) _exit(2);
    unsigned char *more = sbrk(64 * (intptr_t)KIB);
    if (more == (void *)-1) _exit(3);
    memset(more, 2, 64 * KIB);
    _exit(7);
}

int main(void) {
    void (*const drops[])(void) = {nothing, lock_all, lock_future, lock_beyond, name_beyond, map_beyond};
    for (size_t i = 0; i < sizeof drops / sizeof *drops; i++) {
        pid_t parent = fork();
        if (parent == 0) {
            unsigned char *heap = sbrk(64 * (intptr_t)KIB);
            CHECK(heap != (void *)-1);
            fill(heap, 64 * KIB, 1);
            drops[i]();
            pid_t child = fork();
            if (child == 0) raise_after_filter();
            int status = wait_20_s_for(child);
            if (status != 7) FAIL("case %zu: the child ended with %d", i, status);
            CHECK(holds(heap, 64 * KIB, 1));
            _exit(0);
        }
        CHECK(wait_20_s_for(parent) == 0);
    }
    return ok();
}

/* A call over more than the program has finds the hole behind its memory, and what comes to lie there begins without: mlock, mlock2,
 * names, mbind, mseal, guards by process_madvise. Regression: it reached memory mapped in advance, which later blocks got with a lock (then
 * MADV_DONTNEED failed, and old bytes stayed), with guards (SIGSEGV), or sealed. */
#include "guest.h"
#include <sys/prctl.h>
#include <sys/uio.h>

#ifndef SYS_mseal
#define SYS_mseal 462
#endif
#ifndef MADV_GUARD_INSTALL
#define MADV_GUARD_INSTALL 102
#endif

static long mlock_it(unsigned char *p, size_t n) { return mlock(p, n); }
static long mlock2_it(unsigned char *p, size_t n) { return mlock2(p, n, 0); }
static long mlock_on_fault(unsigned char *p, size_t n) { return mlock2(p, n, MLOCK_ONFAULT); }
static long mlock_by_syscall(unsigned char *p, size_t n) { return syscall(SYS_mlock, p, n); }
static long mlock2_by_syscall(unsigned char *p, size_t n) { return syscall(SYS_mlock2, p, n, 0); }
static long bind_it(unsigned char *p, size_t n) {
    unsigned long nodes = 1;
    return syscall(SYS_mbind, p, n, 3, &nodes, 2, 0);
}
static long name(unsigned char *p, size_t n) { return prctl(0x53564d41, 0, p, n, "block"); }
static long name_by_syscall(unsigned char *p, size_t n) { return syscall(SYS_prctl, 0x53564d41, 0, p, n, "block"); }
static long seal(unsigned char *p, size_t n) { return syscall(SYS_mseal, p, n, 0); }

static long guard_many(unsigned char *p, size_t n, int by_syscall) {
    static struct iovec parts[80]; /* the guards are the last part */
    int self = (int)syscall(SYS_pidfd_open, getpid(), 0);
    for (int i = 0; i < 79; i++) parts[i] = (struct iovec){p, 0};
    parts[79] = (struct iovec){p + PAGE, n - PAGE};
    if (self < 0) return -1;
    long done = by_syscall ? syscall(SYS_process_madvise, self, parts, 80, MADV_GUARD_INSTALL, 0)
                           : process_madvise(self, parts, 80, MADV_GUARD_INSTALL, 0);
    int error = errno;
    close(self);
    errno = error;
    return done;
}
static long guard(unsigned char *p, size_t n) { return guard_many(p, n, 0); }
static long guard_by_syscall(unsigned char *p, size_t n) { return guard_many(p, n, 1); }

struct kind {
    const char *name;
    long (*put)(unsigned char *, size_t);
    int error; /* at a hole */
};

static const struct kind KINDS[] = {
    {"mlock", mlock_it, ENOMEM}, {"mlock2", mlock2_it, ENOMEM}, {"mlock2 on fault", mlock_on_fault, ENOMEM},
    {"mlock by syscall", mlock_by_syscall, ENOMEM}, {"mlock2 by syscall", mlock2_by_syscall, ENOMEM},
    {"a name", name, ENOMEM}, {"a name by syscall", name_by_syscall, ENOMEM},
    {"mbind", bind_it, EFAULT}, {"mseal", seal, ENOMEM}, {"guards", guard, ENOMEM}, {"guards by syscall", guard_by_syscall, ENOMEM},
};

/* Puts it on `had` and on four pages behind it, where nothing is. */
static void put_too_long(const struct kind *kind, const char *where, unsigned char *had) {
    long result = kind->put(had, 5 * PAGE);
    /* Kernels lack some of the calls, and refuse them for reserved pages, or take no notice of locks there. */
    if (result >= 0 && !has_reserved_pages()) FAIL("%s beyond %s: should have failed", kind->name, where);
    if (result < 0 && errno != kind->error && errno != ENOSYS && errno != EINVAL && errno != EPERM)
        FAIL("%s beyond %s", kind->name, where);
}

static void check_plain(const struct kind *kind, const char *where, unsigned char *p) {
    int signal_number = fault_signal(p, WRITE_ACCESS);
    if (signal_number) FAIL("%s beyond %s: signal %d in what comes there", kind->name, where, signal_number);
    fill(p, 4 * PAGE, 5);
    if (madvise(p, 4 * PAGE, MADV_DONTNEED) != 0) FAIL("%s beyond %s: MADV_DONTNEED of what comes there", kind->name, where);
    CHECK(all_zero(p, 4 * PAGE));
    if (!has_placed_frames() && is_all(p, PAGE, " lo", " sl")) FAIL("%s beyond %s: what comes there has it", kind->name, where);
}

static void beyond_the_break(const struct kind *kind) {
    unsigned char *end = (unsigned char *)(((uintptr_t)sbrk(0) + 2 * PAGE) & ~(PAGE - 1));
    CHECK(brk(end) == 0);
    end[-1] = 1;
    put_too_long(kind, "the break", end - PAGE);
    CHECK(brk(end + 4 * PAGE) == 0);
    check_plain(kind, "the break", end);
}

static void beyond_a_block(const struct kind *kind) {
    unsigned char *room = mmap(NULL, 8 * MIB, PROT_NONE, ANON | MAP_NORESERVE, -1, 0);
    CHECK(room != MAP_FAILED && munmap(room, 8 * MIB) == 0);
    unsigned char *block = mmap(room, 16 * PAGE, RW, ANON | MAP_FIXED_NOREPLACE, -1, 0);
    CHECK(block == room);
    block[15 * PAGE] = 1;
    put_too_long(kind, "a block", block + 15 * PAGE);
    unsigned char *next = mmap(block + 16 * PAGE, 4 * PAGE, RW, ANON | MAP_FIXED_NOREPLACE, -1, 0);
    CHECK(next == block + 16 * PAGE);
    check_plain(kind, "a block", next);
    CHECK(munmap(next, 4 * PAGE) == 0);
    (void)munmap(block, 16 * PAGE); /* (sealed) */
}

static void put(const struct kind *kind) {
    beyond_a_block(kind);
    beyond_the_break(kind);
    _exit(0);
}

int main(void) {
    for (size_t i = 0; i < sizeof KINDS / sizeof *KINDS; i++) {
        pid_t child = fork();
        if (child == 0) put(&KINDS[i]);
        CHECK(wait_for(child) == 0);
    }
    return ok();
}

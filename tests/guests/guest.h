/* Shared by the guest programs: each checks one promise of the C library or the kernel that must still hold
 * when libpagelab governs the process. A guest prints "ok" and exits 0, or says file:line and what broke. */
#ifndef GUEST_H
#define GUEST_H
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#define PAGE ((size_t)4096)
#define KIB ((size_t)1 << 10)
#define MIB ((size_t)1 << 20)
#define GIB ((size_t)1 << 30)
#define RW (PROT_READ | PROT_WRITE)
#define ANON (MAP_PRIVATE | MAP_ANONYMOUS)

/* dprintf allocates nothing that outlives the call, and _exit runs no handlers: safe in children and handlers. */
#define FAIL(...)                                                                                          \
    do {                                                                                                   \
        int fail_errno_ = errno;                                                                           \
        dprintf(2, "%s:%d: ", __FILE__, __LINE__);                                                         \
        dprintf(2, __VA_ARGS__);                                                                           \
        dprintf(2, " (errno %d: %s)\n", fail_errno_, strerror(fail_errno_));                               \
        _exit(1);                                                                                          \
    } while (0)

#define CHECK(condition)                                                                                   \
    do {                                                                                                   \
        if (!(condition)) FAIL("check failed: %s", #condition);                                            \
    } while (0)

/* CHECK that `call` returns `failure` with errno `expected`. */
#define CHECK_ERRNO(call, failure, expected)                                                               \
    do {                                                                                                   \
        errno = 0;                                                                                         \
        if ((call) != (failure)) FAIL("%s: should have failed", #call);                                    \
        if (errno != (expected)) FAIL("%s: errno should be %s", #call, #expected);                         \
    } while (0)

static inline int ok(void) {
    if (write(1, "ok\n", 3) != 3) _exit(1);
    return 0;
}

static inline unsigned char *map_anon(size_t bytes) {
    void *p = mmap(NULL, bytes, RW, ANON, -1, 0);
    if (p == MAP_FAILED) FAIL("mmap of %zu bytes", bytes);
    return p;
}

/* A byte that depends on its offset and a seed: tells pages and objects apart. */
static inline unsigned char pattern_byte(size_t offset, unsigned seed) {
    return (unsigned char)((offset >> 12) * 31 + offset * 7 + seed * 131 + 1);
}

enum { PERIOD = 256 }; /* pattern_byte() repeats within a page after so many */
static unsigned char pattern_[PAGE + PERIOD];

/* Before main where there are threads; a guest's own early code comes before constructors. */
__attribute__((constructor(101), unused)) static void make_pattern_(void) {
    if (pattern_[1] == 0)
        for (size_t i = sizeof pattern_; i-- > 0;) pattern_[i] = (unsigned char)(i * 7);
}

/* Bytes of the pattern from `offset` on; as many as are left of its page are valid. */
static inline const unsigned char *pattern_from_(size_t offset, unsigned seed) {
    make_pattern_();
    return pattern_ + (unsigned char)(pattern_byte(offset, seed) * 183u); /* 7 * 183 is 1 modulo 256 */
}

static inline size_t of_page_(size_t offset, size_t bytes) {
    size_t left = PAGE - offset % PAGE;
    return left < bytes ? left : bytes;
}

static inline void fill(void *memory, size_t bytes, unsigned seed) {
    for (size_t done = 0, part; done < bytes; done += part) {
        part = of_page_(done, bytes - done);
        memcpy((unsigned char *)memory + done, pattern_from_(done, seed), part);
    }
}

/* `offset` is where `memory` lay in the object that was filled. */
static inline int holds_from(const void *memory, size_t bytes, unsigned seed, size_t offset) {
    for (size_t done = 0, part; done < bytes; done += part) {
        part = of_page_(offset + done, bytes - done);
        if (memcmp((const unsigned char *)memory + done, pattern_from_(offset + done, seed), part) != 0) return 0;
    }
    return 1;
}

static inline int holds(const void *memory, size_t bytes, unsigned seed) {
    return holds_from(memory, bytes, seed, 0);
}

static inline int all_zero(const void *memory, size_t bytes) {
    const unsigned char *p = memory;
    return bytes == 0 || (p[0] == 0 && memcmp(p, p + 1, bytes - 1) == 0);
}

static inline int is_page_aligned(const void *p) { return ((uintptr_t)p & (PAGE - 1)) == 0; }

static sigjmp_buf fault_jump_;
static inline void on_fault_(int signal_number) { siglongjmp(fault_jump_, signal_number); }

enum access { READ_ACCESS, WRITE_ACCESS };

/* The signal that touching `address` raises, or 0. For the only thread of a process. */
__attribute__((unused)) static int fault_signal(void *address, enum access access) {
    struct sigaction act = {.sa_handler = on_fault_}, old_segv, old_bus;
    sigaction(SIGSEGV, &act, &old_segv);
    sigaction(SIGBUS, &act, &old_bus);
    int got = sigsetjmp(fault_jump_, 1);
    if (got == 0) {
        volatile unsigned char *p = address;
        if (access == WRITE_ACCESS)
            *p = *p + 1;
        else
            (void)*p;
    }
    sigaction(SIGSEGV, &old_segv, NULL);
    sigaction(SIGBUS, &old_bus, NULL);
    return got;
}

/* The test says so when memory may come from the kernel's reserved huge pages. Parts of those cannot be unmapped or
 * protected: freed parts stay mapped until all of the page is free, and a call that cannot be carried out is refused (ENOMEM). */
static inline int has_reserved_pages(void) { return getenv("GUEST_RESERVED_PAGES") != NULL; }

/* The same for policies that place frames: they register memory with a userfaultfd, may lock it, and take memory for a pool. */
static inline int has_placed_frames(void) { return getenv("GUEST_POOL_BYTES") != NULL; }

/* Whether a call was carried out; it may have been refused where part of a reserved page would have had to be copied while
 * other threads may write to it. Anything else is a failure. */
__attribute__((unused)) static int is_done(int result) {
    if (result != 0 && !(has_reserved_pages() && errno == ENOMEM)) FAIL("a call on the program's own memory");
    return result == 0;
}

/* Whether the page at `p`, which the program has given back, is closed to it. */
__attribute__((unused)) static int is_gone(unsigned char *p) {
    int got = fault_signal(p, READ_ACCESS);
    return got == SIGSEGV || (got == 0 && has_reserved_pages());
}

/* Exit status of a child, or 128 + signal. */
__attribute__((unused)) static int wait_for(pid_t pid) {
    int status;
    if (pid < 0) FAIL("no child to wait for");
    while (waitpid(pid, &status, 0) < 0)
        if (errno != EINTR) FAIL("waitpid");
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/* As wait_for, but not for ever: a child that hangs is said to. */
__attribute__((unused)) static int wait_at_most(int seconds, pid_t pid) {
    int status;
    for (int i = 0; i < seconds * 1000; i++) {
        pid_t ended = waitpid(pid, &status, WNOHANG);
        CHECK(ended >= 0);
        if (ended == pid) return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
        usleep(1000);
    }
    kill(pid, SIGKILL);
    FAIL("a forked child does not end");
}

__attribute__((unused)) static int wait_20_s_for(pid_t pid) { return wait_at_most(20, pid); }

__attribute__((unused)) static pthread_t start(void *(*run)(void *), void *argument) {
    pthread_t thread;
    int error = pthread_create(&thread, NULL, run, argument);
    if (error) {
        errno = error;
        FAIL("pthread_create");
    }
    return thread;
}

/* A field of /proc/self/status, like "VmLck:", in KiB. */
__attribute__((unused)) static long status_kib(const char *field) {
    static char text[4096];
    int fd = open("/proc/self/status", O_RDONLY);
    ssize_t bytes = read(fd, text, sizeof text - 1);
    CHECK(bytes > 0 && close(fd) == 0);
    text[bytes] = 0;
    const char *found = strstr(text, field);
    CHECK(found);
    return atol(found + strlen(field));
}

/* Whether all of [p, p + bytes) is mapped, with one of two flags as smaps has them (" dc"). */
__attribute__((unused)) static int is_all(const void *p, size_t bytes, const char *flag, const char *or_flag) {
    static char line[4096];
    FILE *file = fopen("/proc/self/smaps", "r");
    uintptr_t start = 0, end = 0, from, to, at = (uintptr_t)p;
    CHECK(file);
    while (at < (uintptr_t)p + bytes && fgets(line, sizeof line, file)) {
        char dash;
        if (sscanf(line, "%zx%c%zx ", &from, &dash, &to) == 3 && dash == '-') {
            start = from;
            end = to;
        } else if (strncmp(line, "VmFlags:", 8) == 0 && start <= at && at < end && (strstr(line, flag) || strstr(line, or_flag))) {
            at = end;
        }
    }
    fclose(file);
    return at >= (uintptr_t)p + bytes;
}

/* A small, seeded, allocation-free generator (xorshift64*). */
__attribute__((unused)) static uint64_t random_next(uint64_t *state) {
    uint64_t x = *state ? *state : 0x9E3779B97F4A7C15u;
    x ^= x >> 12;
    x ^= x << 25;
    x ^= x >> 27;
    *state = x;
    return x * 0x2545F4914F6CDD1Du;
}

/* malloc, write, check and free in a random order: `rounds` operations on 64 slots of up to `largest` bytes. */
__attribute__((unused)) static void churn(uint64_t seed, int rounds, size_t largest) {
    enum { SLOTS = 64 };
    unsigned char *slot[SLOTS] = {0};
    size_t size[SLOTS] = {0};
    for (int i = 0; i < rounds; i++) {
        unsigned s = random_next(&seed) % SLOTS;
        if (slot[s]) {
            CHECK(holds(slot[s], size[s] < 256 ? size[s] : 256, s));
            CHECK(slot[s][size[s] - 1] == (unsigned char)s);
            free(slot[s]);
            slot[s] = NULL;
            continue;
        }
        size[s] = 257 + random_next(&seed) % largest;
        slot[s] = malloc(size[s]);
        if (!slot[s]) FAIL("malloc of %zu bytes", size[s]);
        fill(slot[s], 256, s);
        slot[s][size[s] - 1] = (unsigned char)s;
    }
    for (unsigned s = 0; s < SLOTS; s++) free(slot[s]);
}

/* Small blocks, and a large one that is protected and discarded in part, and given back. */
__attribute__((unused)) static void work_on_memory(void) {
    churn(1, 300, 300 * KIB);
    unsigned char *p = map_anon(9 * MIB);
    fill(p, 9 * MIB, 2);
    CHECK(mprotect(p, MIB, PROT_READ) == 0 && madvise(p + MIB, MIB, MADV_DONTNEED) == 0);
    CHECK(holds(p, MIB, 2) && all_zero(p + MIB, MIB));
    CHECK(munmap(p, 9 * MIB) == 0);
}

/* As work_on_memory, in a forked child, which ends by _exit. */
__attribute__((unused)) static void work_on_memory_in_child(void) {
    pid_t child = fork();
    if (child == 0) {
        work_on_memory();
        _exit(5);
    }
    CHECK(wait_for(child) == 5);
}

#endif

/* Faults taken inside system calls: the kernel writes into pages that nobody has touched. */
#include "frames.h"
#include <linux/futex.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>

static unsigned char *next, *begin;

/* `pages` untouched pages, with a hole of untouched ones before them. */
static unsigned char *fresh(size_t pages) {
    unsigned char *p = next + 3 * PAGE;
    next = p + pages * PAGE;
    return p;
}

static void reads_and_pipes(void) {
    int ends[2], zero = open("/dev/zero", O_RDONLY);
    CHECK(pipe(ends) == 0 && zero >= 0);
    unsigned char *p = fresh(2);
    CHECK(write(ends[1], "hello", 5) == 5);
    CHECK(read(ends[0], p + PAGE - 2, 5) == 5 && memcmp(p + PAGE - 2, "hello", 5) == 0);
    CHECK_PLACED(p, 2);
    p = fresh(300);
    CHECK(read(zero, p, 300 * PAGE) == 300 * (ssize_t)PAGE && all_zero(p, 300 * PAGE));
    CHECK_PLACED(p, 300);
    unsigned char *first = fresh(1), *second = fresh(1);
    struct iovec parts[2] = {{first, 3}, {second, 3}};
    CHECK(write(ends[1], "abcdef", 6) == 6);
    CHECK(readv(ends[0], parts, 2) == 6 && !memcmp(first, "abc", 3) && !memcmp(second, "def", 3));
    CHECK_PLACED(first, 1);
    CHECK_PLACED(second, 1);
    /* write(2) of a page that was never touched: the kernel reads it, zeros come out. */
    unsigned char *source = fresh(1), got[64];
    CHECK(write(ends[1], source, 64) == 64 && read(ends[0], got, 64) == 64 && all_zero(got, 64));
    CHECK_PLACED(source, 1);
    struct iovec gift = {fresh(4), 4 * PAGE};
    CHECK(vmsplice(ends[1], &gift, 1, 0) == 4 * (ssize_t)PAGE);
    static unsigned char sink[4 * PAGE];
    CHECK(read(ends[0], sink, sizeof sink) == sizeof sink && all_zero(sink, sizeof sink));
    CHECK_PLACED(gift.iov_base, 4);
    close(ends[0]), close(ends[1]), close(zero);
}

static void sockets_and_random(void) {
    int pair[2];
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
    unsigned char *p = fresh(1), *q = fresh(2);
    CHECK(send(pair[0], "xyz", 3, 0) == 3 && recv(pair[1], p, 3, 0) == 3 && !memcmp(p, "xyz", 3));
    CHECK_PLACED(p, 1);
    CHECK(getrandom(q + PAGE - 100, 256, 0) == 256);
    CHECK_PLACED(q, 2);
    struct stat *st = (struct stat *)fresh(1);
    CHECK(stat("/dev/null", st) == 0 && S_ISCHR(st->st_mode));
    CHECK_PLACED(st, 1);
    struct pollfd *poll_set = (struct pollfd *)fresh(1);
    CHECK(poll(poll_set, 1, 0) >= 0); /* descriptor 0, no events: reads and writes the fresh page */
    CHECK_PLACED(poll_set, 1);
    int *waiting = (int *)fresh(1);
    CHECK(ioctl(pair[0], FIONREAD, waiting) == 0 && *waiting == 0);
    CHECK_PLACED(waiting, 1);
    close(pair[0]), close(pair[1]);
}

static void futexes(void) {
    unsigned *p = (unsigned *)fresh(1), *q = (unsigned *)fresh(1);
    struct timespec soon = {0, 1000000};
    CHECK_ERRNO(syscall(SYS_futex, p, FUTEX_WAIT, 1, &soon, NULL, 0), -1, EAGAIN);
    CHECK_PLACED(p, 1);
    CHECK_ERRNO(syscall(SYS_futex, q, FUTEX_WAIT_PRIVATE, 0, &soon, NULL, 0), -1, ETIMEDOUT);
    CHECK_PLACED(q, 1);
    CHECK(syscall(SYS_futex, (unsigned *)fresh(1), FUTEX_WAKE, 1, NULL, NULL, 0) == 0);
}

/* Regression: where the kernel changes the word, its fault does not wait for the library, and the calls failed (EFAULT). */
static void changed_futexes(void) {
    for (unsigned is_private = 0; is_private <= FUTEX_PRIVATE_FLAG; is_private += FUTEX_PRIVATE_FLAG) {
        unsigned *p = (unsigned *)fresh(1), *q = (unsigned *)fresh(1), tid = (unsigned)gettid();
        CHECK(syscall(SYS_futex, p, FUTEX_WAKE_OP | is_private, 1, 1, q, FUTEX_OP(FUTEX_OP_SET, 5, FUTEX_OP_CMP_EQ, 0)) == 0);
        CHECK(*q == 5);
        CHECK_PLACED(q, 1);
        p = (unsigned *)fresh(1);
        CHECK(syscall(SYS_futex, p, FUTEX_LOCK_PI | is_private, 0, NULL, NULL, 0) == 0 && *p == tid);
        CHECK(syscall(SYS_futex, p, FUTEX_UNLOCK_PI | is_private, 0, NULL, NULL, 0) == 0 && *p == 0);
        CHECK_PLACED(p, 1);
        p = (unsigned *)fresh(1);
        CHECK(syscall(SYS_futex, p, FUTEX_TRYLOCK_PI | is_private, 0, NULL, NULL, 0) == 0 && *p == tid);
        CHECK_PLACED(p, 1);
        CHECK_ERRNO(syscall(SYS_futex, NULL, FUTEX_LOCK_PI | is_private, 0, NULL, NULL, 0), -1, EFAULT);
        CHECK_ERRNO(syscall(SYS_futex, p, 77 | is_private, 0, NULL, NULL, 0), -1, ENOSYS);
    }
}

/* glibc's own calls come after it has written to the lock. */
static void inheriting_mutex(void) {
    pthread_mutexattr_t inherits;
    pthread_mutex_t *mutex = (pthread_mutex_t *)fresh(1);
    CHECK(pthread_mutexattr_init(&inherits) == 0);
    CHECK(pthread_mutexattr_setprotocol(&inherits, PTHREAD_PRIO_INHERIT) == 0);
    CHECK(pthread_mutex_init(mutex, &inherits) == 0 && pthread_mutex_lock(mutex) == 0 && pthread_mutex_unlock(mutex) == 0);
    CHECK_PLACED(mutex, 1);
}

/* get_user_pages: the pages are pinned while the device writes into them. */
static void direct_io(void) {
    int self = open("/proc/self/exe", O_RDONLY | O_DIRECT);
    if (self < 0) return; /* not every file system has O_DIRECT */
    unsigned char *p = fresh(2);
    CHECK(read(self, p, 2 * PAGE) == 2 * (ssize_t)PAGE && memcmp(p, "\177ELF", 4) == 0);
    CHECK_PLACED(p, 2);
    close(self);
}

static void other_process_memory(void) {
    unsigned char *into = fresh(3), *from = fresh(3);
    from[0] = 42;
    struct iovec local = {into, 3 * PAGE}, remote = {from, 3 * PAGE};
    CHECK(process_vm_readv(getpid(), &local, 1, &remote, 1, 0) == 3 * (ssize_t)PAGE);
    CHECK(into[0] == 42 && all_zero(into + 1, 3 * PAGE - 1));
    CHECK_PLACED(into, 3);
    CHECK_PLACED(from, 3);
    /* Another process reads and writes pages that we never touched. */
    unsigned char *asked = fresh(2), *told = fresh(2);
    int ready[2];
    CHECK(pipe(ready) == 0);
    pid_t parent = getpid(), pid = fork();
    if (pid == 0) {
        static unsigned char buffer[2 * PAGE];
        CHECK(read(ready[0], buffer, 1) == 1);
        buffer[0] = 0;
        struct iovec own = {buffer, sizeof buffer}, read_there = {asked, 2 * PAGE}, write_there = {told, 2 * PAGE};
        if (process_vm_readv(parent, &own, 1, &read_there, 1, 0) != (ssize_t)sizeof buffer) FAIL("readv of the parent");
        CHECK(all_zero(buffer, sizeof buffer));
        memset(buffer, 0x5A, sizeof buffer);
        if (process_vm_writev(parent, &own, 1, &write_there, 1, 0) != (ssize_t)sizeof buffer)
            FAIL("writev into the parent");
        _exit(0);
    }
    /* If pages were there already, placed ahead, then the fork has shared them: away with those. */
    CHECK(madvise(asked, 2 * PAGE, MADV_DONTNEED) == 0 && madvise(told, 2 * PAGE, MADV_DONTNEED) == 0);
    CHECK(write(ready[1], "x", 1) == 1);
    CHECK(wait_for(pid) == 0);
    CHECK(told[0] == 0x5A && told[2 * PAGE - 1] == 0x5A);
    CHECK_PLACED(asked, 2);
    CHECK_PLACED(told, 2);
}

int main(void) {
    begin = next = map_anon(4 * MIB);
    reads_and_pipes();
    sockets_and_random();
    futexes();
    changed_futexes();
    inheriting_mutex();
    direct_io();
    other_process_memory();
    CHECK((size_t)(next - begin) < 4 * MIB);
    return ok();
}

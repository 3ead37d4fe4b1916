/* System calls that write into fresh memory: read, readv, pipes, sockets, getrandom, futex, O_DIRECT. */
#include "guest.h"
#include <linux/futex.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>

int main(void) {
    unsigned char *p = map_anon(8 * MIB);
    int ends[2];
    CHECK(pipe(ends) == 0);
    CHECK(write(ends[1], "hello", 5) == 5);
    CHECK(read(ends[0], p + 5 * PAGE - 2, 5) == 5 && memcmp(p + 5 * PAGE - 2, "hello", 5) == 0);
    CHECK(write(ends[1], "abcdef", 6) == 6);
    struct iovec parts[2] = {{p + MIB, 3}, {p + 3 * MIB, 3}};
    CHECK(readv(ends[0], parts, 2) == 6 && !memcmp(p + MIB, "abc", 3) && !memcmp(p + 3 * MIB, "def", 3));
    int sockets[2];
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, sockets) == 0);
    CHECK(send(sockets[0], "xyz", 3, 0) == 3 && recv(sockets[1], p + 4 * MIB, 3, 0) == 3);
    CHECK(getrandom(p + 5 * MIB, 256, 0) == 256);
    CHECK(syscall(SYS_futex, p + 6 * MIB, FUTEX_WAKE, 1, NULL, NULL, 0) == 0);
    int zero = open("/dev/zero", O_RDONLY);
    CHECK(zero >= 0 && read(zero, p + 7 * MIB, 300 * KIB) == (ssize_t)(300 * KIB));
    CHECK_ERRNO(syscall(SYS_read, zero, 8, 10), -1, EFAULT);
    unsigned char *read_only = mmap(NULL, MIB, PROT_READ, ANON, -1, 0);
    CHECK(read_only != MAP_FAILED && all_zero(read_only, MIB));
    CHECK_ERRNO(read(zero, read_only, PAGE), -1, EFAULT);
    unsigned char *target = map_anon(MIB);
    int self = open("/proc/self/exe", O_RDONLY | O_DIRECT);
    if (self >= 0) { /* not every file system has O_DIRECT */
        CHECK(read(self, target, PAGE) == (ssize_t)PAGE && memcmp(target, "\177ELF", 4) == 0);
    }
    struct iovec local = {p, PAGE}, remote = {target, PAGE};
    CHECK(process_vm_readv(getpid(), &local, 1, &remote, 1, 0) == (ssize_t)PAGE);
    return ok();
}

/* What brings in pages that a program has never touched, the library's own among them: mlockall(MCL_CURRENT), and another process
 * that reads all memory (a scanner, a debugger). Afterwards new memory is placed, and calls that need a single thread, or that
 * no thread goes on beside a filter, work as before. Regression: the library's threads got no requests any more. */
#include "frames.h"
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <linux/userfaultfd.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/uio.h>

static void locks_all(void) {
    if (mlockall(MCL_CURRENT) != 0) CHECK(errno == ENOMEM || errno == EPERM); /* not for this user */
}

static void read_all(pid_t process) {
    char path[64], line[400], access[8];
    static char bytes[4096];
    unsigned long start, end;
    snprintf(path, sizeof path, "/proc/%d/maps", process);
    FILE *maps = fopen(path, "r");
    CHECK(maps);
    while (fgets(line, sizeof line, maps)) {
        if (sscanf(line, "%lx-%lx %7s", &start, &end, access) != 3 || access[0] != 'r' || end - start > 64 * MIB) continue;
        for (; start < end; start += PAGE) {
            struct iovec into = {bytes, PAGE}, from = {(void *)start, PAGE};
            (void)!process_vm_readv(process, &into, 1, &from, 1, 0);
        }
    }
    fclose(maps);
}

static void is_read(void) {
    pid_t parent = getpid(), reader = fork();
    if (reader == 0) {
        read_all(parent);
        _exit(0);
    }
    CHECK(wait_for(reader) == 0);
}

/* New memory is placed; pages change places where the policy wants that. */
static void new_memory(void) {
    for (int round = 0; round < 3; round++) {
        unsigned char *p = map_anon(1000 * PAGE), *target = map_anon(1000 * PAGE);
        write_tags(p, 1000, 1);
        CHECK_PLACED(p, 1000);
        CHECK(mremap(p, 1000 * PAGE, 1000 * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, target) == target);
        check_tags(target, 1000, 1);
        CHECK(munmap(target, 1000 * PAGE) == 0);
    }
}

static void user_namespace(void) {
    unsigned char *p = map_anon(64 * PAGE);
    write_tags(p, 32, 2);
    if (unshare(CLONE_NEWUSER) != 0) CHECK(errno == EPERM || errno == ENOSPC); /* not on this machine */
    write_tags(p, 64, 3);
    check_tags(p, 64, 3);
}

/* A filter of all threads that kills what the library's would do. */
static void filter(void) {
    struct sock_filter code[] = {BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 0), BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_ioctl, 0, 1),
                                 BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
                                 BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
    struct sock_fprog program = {4, code};
    unsigned char *p = map_anon(256 * PAGE);
    write_tags(p, 64, 4);
    CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
    CHECK(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &program) == 0);
    write_tags(p, 256, 5);
    check_tags(p, 256, 5);
}

/* The program's own userfaultfd: the library gives the range up. */
static void own_userfaultfd(void) {
    int fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC);
    struct uffdio_api api = {.api = UFFD_API};
    unsigned char *p = map_anon(16 * PAGE);
    struct uffdio_register range = {.range = {(uintptr_t)p, 16 * PAGE}, .mode = UFFDIO_REGISTER_MODE_MISSING};
    if (fd < 0) return; /* not for this user */
    CHECK(ioctl(fd, UFFDIO_API, &api) == 0 && ioctl(fd, UFFDIO_REGISTER, &range) == 0);
}

int main(void) {
    static void (*const how[])(void) = {locks_all, is_read};
    static void (*const then[])(void) = {new_memory, user_namespace, filter, own_userfaultfd};
    unsigned char *w = map_anon(256 * PAGE);
    write_tags(w, 256, 6);
    for (int i = 0; i < 2; i++)
        for (int j = 0; j < 4; j++) {
            pid_t child = fork();
            if (child == 0) {
                unsigned char *p = map_anon(64 * PAGE);
                write_tags(p, 64, 7);
                how[i]();
                how[i]();
                then[j]();
                check_tags(p, 64, 7);
                _exit(0);
            }
            if (wait_for(child) != 0) FAIL("after call %d, use %d", i, j);
        }
    check_tags(w, 256, 6);
    return ok();
}

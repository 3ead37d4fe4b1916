/* A program that unmaps memory past libc's munmap, by shmdt or a system call of its own, finds the addresses free again.
 * Regression: a mapping with MAP_FIXED_NOREPLACE failed there with EEXIST, and a hint had no effect. And where it lies
 * over memory that was attached past libc, it must fail. Regression: it got other addresses. What is gone cannot be
 * resized, nor what a forked child does not get; what was attached can. Regression: both were answered from the tables. */
#include "guest.h"
#include <sys/shm.h>
#include <sys/syscall.h>

#ifndef MAP_FIXED_NOREPLACE
#define MAP_FIXED_NOREPLACE 0x100000
#endif

static const size_t SEGMENT = 64 * KIB;

static unsigned char *map_at(unsigned char *where, size_t bytes, int flags) {
    return mmap(where, bytes, RW, ANON | flags, -1, 0);
}

static void attached_over(int segment, size_t bytes) {
    unsigned char *block = map_anon(bytes);
    memset(block, 3, bytes);
    unsigned char *part = block + (bytes - SEGMENT) / 2 / PAGE * PAGE;
    CHECK(shmat(segment, part, SHM_REMAP) == part);
    memset(part, 5, SEGMENT);
    CHECK_ERRNO(map_at(part, SEGMENT, MAP_FIXED_NOREPLACE), MAP_FAILED, EEXIST);
    CHECK(shmdt(part) == 0);
    CHECK(map_at(part, SEGMENT, MAP_FIXED_NOREPLACE) == part);
    for (size_t i = 0; i < bytes; i += PAGE) CHECK(block[i] == (block + i >= part && block + i < part + SEGMENT ? 0 : 3));
    CHECK(munmap(block, bytes) == 0);
    CHECK(shmat(segment, block, 0) == block && block[SEGMENT - 1] == 5);
    CHECK(shmdt(block) == 0);
}

static void unmapped_directly(size_t bytes) {
    unsigned char *block = map_anon(bytes);
    memset(block, 3, bytes);
    size_t half = bytes / 2 / PAGE * PAGE;
    CHECK(syscall(SYS_munmap, block + half, bytes - half) == 0);
    CHECK_ERRNO(map_at(block + half - PAGE, bytes - half, MAP_FIXED_NOREPLACE), MAP_FAILED, EEXIST);
    CHECK(map_at(block + half, bytes - half, MAP_FIXED_NOREPLACE) == block + half);
    CHECK(block[half] == 0 && block[half - 1] == 3);
    CHECK(syscall(SYS_munmap, block, bytes) == 0);
    CHECK(map_at(block, bytes, 0) == block && block[0] == 0 && block[bytes - 1] == 0);
    CHECK(munmap(block, bytes) == 0);
}

static void attached_where_nothing_is(int segment, size_t bytes) {
    unsigned char *block = map_anon(bytes);
    CHECK(munmap(block, bytes) == 0);
    CHECK(shmat(segment, block, 0) == block);
    block[0] = 5;
    CHECK_ERRNO(map_at(block, SEGMENT, MAP_FIXED_NOREPLACE), MAP_FAILED, EEXIST);
    CHECK_ERRNO(map_at(block, bytes, MAP_FIXED_NOREPLACE), MAP_FAILED, EEXIST);
    unsigned char *elsewhere = map_at(block, SEGMENT, 0);
    CHECK(elsewhere != MAP_FAILED && elsewhere != block);
    memset(elsewhere, 6, SEGMENT);
    /* Beside it, even in the same tile, there is room. */
    CHECK(munmap(elsewhere, SEGMENT) == 0);
    if (bytes > SEGMENT) {
        unsigned char *rest = map_at(block + SEGMENT, bytes - SEGMENT, MAP_FIXED_NOREPLACE);
        CHECK(rest == block + SEGMENT && rest[0] == 0);
        CHECK(munmap(rest, bytes - SEGMENT) == 0);
    }
    CHECK(block[0] == 5 && shmdt(block) == 0);
    block = map_at(block, bytes, MAP_FIXED_NOREPLACE);
    CHECK(block != MAP_FAILED && all_zero(block, bytes) && munmap(block, bytes) == 0);
}

static void cannot_be_resized(unsigned char *block, size_t bytes) {
    CHECK_ERRNO(mremap(block, bytes, 2 * bytes, MREMAP_MAYMOVE), MAP_FAILED, EFAULT);
    CHECK_ERRNO(mremap(block, bytes, bytes + PAGE, 0), MAP_FAILED, EFAULT);
    CHECK_ERRNO(mremap(block, bytes, bytes, 0), MAP_FAILED, EFAULT);
    CHECK_ERRNO(mremap(block, bytes, PAGE, 0), MAP_FAILED, EFAULT);
    CHECK_ERRNO(madvise(block, bytes, MADV_HUGEPAGE), -1, ENOMEM);
}

static void gone_for_children(size_t bytes) {
    unsigned char *block = map_anon(bytes);
    memset(block, 3, bytes);
    CHECK(madvise(block, bytes, MADV_DONTFORK) == 0);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        /* Where the kernel chose its place, something else of the child's may have got it. */
        CHECK(munmap(map_anon(PAGE), PAGE) == 0);
        if (msync(block, bytes, MS_ASYNC) == -1 && msync(block, PAGE, MS_ASYNC) == -1) cannot_be_resized(block, bytes);
        _exit(7);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 7);
    unsigned char *grown = mremap(block, bytes, 2 * bytes, MREMAP_MAYMOVE);
    CHECK(grown != MAP_FAILED && grown[bytes - 1] == 3 && munmap(grown, 2 * bytes) == 0);
}

static void half_is_gone_for_children(size_t bytes) {
    unsigned char *block = map_anon(bytes);
    memset(block, 3, bytes);
    CHECK(madvise(block + bytes / 2, bytes - bytes / 2, MADV_DONTFORK) == 0);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        CHECK(munmap(map_anon(PAGE), PAGE) == 0);
        if (msync(block + bytes / 2, PAGE, MS_ASYNC) == -1)
            CHECK_ERRNO(mremap(block, bytes, 4 * bytes, MREMAP_MAYMOVE), MAP_FAILED, EFAULT);
        _exit(7);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 7);
    CHECK(munmap(block, bytes) == 0);
}

static void gone(int segment, size_t bytes) {
    unsigned char *block = map_anon(bytes);
    CHECK(syscall(SYS_munmap, block, bytes) == 0);
    cannot_be_resized(block, bytes);
    CHECK(munmap(block, bytes) == 0);
    block = map_anon(SEGMENT);
    CHECK(shmat(segment, block, SHM_REMAP) == block && shmdt(block) == 0);
    cannot_be_resized(block, SEGMENT);
    CHECK(munmap(block, SEGMENT) == 0);
}

static void attached_in_a_hole_is_resized(int segment, size_t bytes) {
    unsigned char *block = map_anon(bytes), *part = block + (bytes - SEGMENT) / 2 / PAGE * PAGE;
    memset(block, 3, bytes);
    CHECK(munmap(part, SEGMENT) == 0 && shmat(segment, part, 0) == part);
    memset(part, 5, SEGMENT);
    CHECK(munmap(part + SEGMENT / 2, SEGMENT / 2) == 0);
    CHECK(mremap(part, SEGMENT / 2, SEGMENT, 0) == part && part[SEGMENT - 1] == 5);
    CHECK(mremap(part, SEGMENT, SEGMENT / 2, 0) == part && part[SEGMENT / 2 - 1] == 5);
    CHECK(munmap(block, bytes) == 0);
}

int main(void) {
    static const size_t sizes[] = {128 * KIB, MIB, 2 * MIB, 5 * MIB, 64 * MIB};
    /* Parts of reserved pages cannot be unmapped, nor shared memory attached over them. */
    int reserved = getenv("GUEST_RESERVED_PAGES") != NULL;
    int segment = shmget(IPC_PRIVATE, SEGMENT, IPC_CREAT | 0600);
    CHECK(segment >= 0);
    void *held = shmat(segment, NULL, 0);
    CHECK(held != (void *)-1 && shmctl(segment, IPC_RMID, NULL) == 0);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes && !reserved; i++) {
        attached_over(segment, sizes[i]);
        unmapped_directly(sizes[i]);
        attached_where_nothing_is(segment, sizes[i]);
        gone_for_children(sizes[i]);
        half_is_gone_for_children(sizes[i]);
        gone(segment, sizes[i]);
        attached_in_a_hole_is_resized(segment, sizes[i]);
    }
    return ok();
}

/* A program that unmaps memory past libc's munmap, by shmdt or a system call of its own, finds the addresses free again.
 * Regression: a mapping with MAP_FIXED_NOREPLACE failed there with EEXIST, and a hint had no effect. And where it lies
 * over memory that was attached past libc, it must fail. Regression: it got other addresses. */
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
    }
    return ok();
}

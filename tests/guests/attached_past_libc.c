/* What the program attached past libc's memory calls (shmat, a system call of its own) where it had given memory back
 * stays when the rest of that memory goes. */
#include "guest.h"
#include <sys/shm.h>

enum { BLOCK = 64 * 1024 };

static int shared_memory(void) {
    int id = shmget(IPC_PRIVATE, PAGE, IPC_CREAT | 0600);
    CHECK(id >= 0);
    return id;
}

/* Two neighbours: the first goes, something is attached there, the second goes. */
static void in_place_of_a_neighbour(void) {
    int id = shared_memory();
    unsigned char *first = map_anon(BLOCK), *second = map_anon(BLOCK);
    *second = 1;
    CHECK(munmap(first, BLOCK) == 0);
    unsigned char *attached = shmat(id, first, 0);
    shmctl(id, IPC_RMID, NULL);
    /* A system may have put something else there, or keep the addresses for itself. */
    if (attached == (void *)-1) attached = NULL;
    if (attached) *attached = 5;
    CHECK(munmap(second, BLOCK) == 0);
    if (attached) CHECK(*attached == 5 && shmdt(attached) == 0);
}

/* A hole in the middle of a block, filled; then both ends of the block go. */
static void in_a_hole(int by_shmat) {
    unsigned char *block = map_anon(3 * PAGE), *attached;
    fill(block, 3 * PAGE, 1);
    CHECK(munmap(block + PAGE, PAGE) == 0);
    if (by_shmat) {
        int id = shared_memory();
        attached = shmat(id, block + PAGE, 0);
        shmctl(id, IPC_RMID, NULL);
        if (attached == (void *)-1) attached = NULL;
    } else {
        /* libc's `syscall` is left alone for mmap, as is a program's own instruction. */
        long at = syscall(SYS_mmap, block + PAGE, PAGE, RW, ANON | MAP_FIXED_NOREPLACE, -1, 0L);
        attached = at < 0 ? NULL : (unsigned char *)at;
    }
    if (attached) *attached = 7;
    CHECK(munmap(block, PAGE) == 0);
    CHECK(munmap(block + 2 * PAGE, PAGE) == 0);
    if (!attached) return;
    CHECK(fault_signal(attached, READ_ACCESS) == 0);
    CHECK(*attached == 7);
    if (by_shmat)
        CHECK(shmdt(attached) == 0);
    else
        CHECK(syscall(SYS_munmap, attached, PAGE) == 0);
}

int main(void) {
    for (int i = 0; i < 20; i++) {
        in_place_of_a_neighbour();
        in_a_hole(1);
        in_a_hole(0);
    }
    unsigned char *p = map_anon(5 * MIB);
    CHECK(all_zero(p, 5 * MIB));
    return ok();
}

/* Mapping flags seldom seen: GROWSDOWN, STACK, LOCKED, shared_memory, hugetlb asked for by the program itself. */
#include "guest.h"
#include <sys/ipc.h>
#include <sys/shm.h>

int main(void) {
    unsigned char *p = mmap(NULL, 64 * KIB, RW, ANON | MAP_GROWSDOWN | MAP_STACK, -1, 0);
    CHECK(p != MAP_FAILED && all_zero(p, 64 * KIB));
    CHECK(munmap(p, 64 * KIB) == 0);
    p = mmap(NULL, 16 * KIB, RW, ANON | MAP_LOCKED, -1, 0);
    if (p != MAP_FAILED) CHECK(all_zero(p, 16 * KIB) && munmap(p, 16 * KIB) == 0);
    /* With an empty pool ENOMEM, with pages in it 2 MiB: both right, and nothing else. */
    p = mmap(NULL, 2 * MIB, RW, ANON | MAP_HUGETLB, -1, 0);
    if (p == MAP_FAILED)
        CHECK(errno == ENOMEM || errno == EINVAL);
    else {
        CHECK((uintptr_t)p % (2 * MIB) == 0);
        fill(p, 2 * MIB, 1);
        CHECK(munmap(p, 2 * MIB) == 0);
    }
    int id = shmget(IPC_PRIVATE, 3 * MIB, IPC_CREAT | 0600);
    CHECK(id >= 0);
    unsigned char *s = shmat(id, NULL, 0);
    CHECK(s != (void *)-1 && shmctl(id, IPC_RMID, NULL) == 0);
    CHECK(all_zero(s, 3 * MIB));
    fill(s, 3 * MIB, 2);
    CHECK(shmdt(s) == 0);
    p = mmap(NULL, MIB, RW, MAP_SHARED_VALIDATE | MAP_ANONYMOUS, -1, 0);
    CHECK(p == MAP_FAILED || all_zero(p, MIB));
    return ok();
}

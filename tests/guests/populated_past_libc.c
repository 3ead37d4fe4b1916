/* Memory that the program attached, or mapped by a system call of its own, where it had memory of libc before, can be
 * populated. Regression: the library did not know it, and said that nothing is mapped there. */
#include "guest.h"
#include <sys/shm.h>

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

int main(void) {
    unsigned char *kept = map_anon(4 * MIB), *left = map_anon(4 * MIB);
    CHECK(munmap(left, 4 * MIB) == 0);
    int segment = shmget(IPC_PRIVATE, 4 * MIB, IPC_CREAT | 0600);
    CHECK(segment != -1);
    unsigned char *shared = shmat(segment, left, 0);
    CHECK(shmctl(segment, IPC_RMID, NULL) == 0);
    CHECK(shared == left);
    CHECK(madvise(shared, 4 * MIB, MADV_POPULATE_WRITE) == 0);
    CHECK(munmap(kept, 4 * MIB) == 0);
    int how = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED;
    unsigned char *raw = (unsigned char *)syscall(SYS_mmap, kept, 4 * MIB, RW, how, -1, 0);
    CHECK(raw == kept);
    CHECK(madvise(raw, 4 * MIB, MADV_POPULATE_WRITE) == 0);
    CHECK(all_zero(raw, 4 * MIB) && all_zero(shared, 4 * MIB));
    return ok();
}

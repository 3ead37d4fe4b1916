/* Where a program had memory and gave it back, it may map something else, also past the memory calls (shmat, a system call of its own).
 * Regression: a page of the library lay there, which keeps page tables while a program has nothing. */
#include "guest.h"
#include <sys/shm.h>

static void attach(unsigned char *at, size_t bytes) {
    int id = shmget(IPC_PRIVATE, bytes, IPC_CREAT | 0600);
    if (id < 0) return; /* none may be left */
    unsigned char *p = shmat(id, at, 0);
    int error = errno;
    CHECK(shmctl(id, IPC_RMID, NULL) == 0);
    errno = error;
    if (p != at) FAIL("shmat of %zu bytes at %p", bytes, (void *)at);
    fill(p, bytes, 1);
    CHECK(holds(p, bytes, 1) && shmdt(p) == 0);
}

static void map_alone(unsigned char *at, size_t bytes) {
    long p = syscall(SYS_mmap, at, bytes, RW, ANON | MAP_FIXED_NOREPLACE, -1, 0);
    if (p != (long)at) FAIL("mmap of %zu bytes at %p", bytes, (void *)at);
    fill(at, bytes, 2);
    CHECK(holds(at, bytes, 2) && syscall(SYS_munmap, at, bytes) == 0);
}

int main(void) {
    static const size_t sizes[] = {MIB, 2 * MIB, 3 * MIB, 512 * MIB};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        for (int order = 0; order < 4; order++) {
            size_t half = sizes[i], window = half < 4 * MIB ? half : MIB;
            unsigned char *low = mmap(NULL, 2 * half, half < 4 * MIB ? RW : PROT_NONE, ANON, -1, 0), *high = low + half;
            CHECK(low != MAP_FAILED);
            if (half < 4 * MIB) fill(low, 2 * half, 3);
            CHECK(munmap(order % 2 ? low : high, half) == 0);
            CHECK(munmap(order % 2 ? high : low, half) == 0);
            unsigned char *at = order / 2 ? low + 2 * half - window : high;
            attach(at, window);
            map_alone(at, window);
            map_alone(low, window);
        }
    }
    return ok();
}

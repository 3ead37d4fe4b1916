/* A child made past libc's fork, to which the policy does not apply, still has its parent's memory on reserved pages: it can unmap,
 * protect, discard and give back parts of it, and fork in turn. Regression: it did not know any more how large those pages are. */
#include "../guest.h"
#include <sys/syscall.h>

static void change_parts(unsigned char *block) {
    CHECK(munmap(block + MIB, 64 * KIB) == 0);
    CHECK(mprotect(block + 3 * MIB, MIB / 2, PROT_READ) == 0);
    CHECK(madvise(block + 4 * MIB, MIB, MADV_DONTNEED) == 0);
    CHECK(holds(block, MIB, 1) && holds_from(block + 3 * MIB, MIB, 1, 3 * MIB) && all_zero(block + 4 * MIB, MIB));
    CHECK(holds_from(block + 5 * MIB, 3 * MIB, 1, 5 * MIB));
    /* Whole pages, one part after the other. */
    for (size_t at = 6 * MIB; at < 8 * MIB; at += MIB / 2) CHECK(munmap(block + at, MIB / 2) == 0);
    CHECK(mmap(block + 6 * MIB, 2 * MIB, RW, ANON | MAP_FIXED_NOREPLACE, -1, 0) == block + 6 * MIB);
    CHECK(all_zero(block + 6 * MIB, 2 * MIB));
    unsigned char *moved = mremap(block + 5 * MIB, MIB / 2, MIB, MREMAP_MAYMOVE);
    CHECK(moved != MAP_FAILED && holds_from(moved, MIB / 2, 1, 5 * MIB) && all_zero(moved + MIB / 2, MIB / 2));
}

static void change_heap(unsigned char *heap) {
    CHECK(mprotect(heap + MIB, 64 * KIB, PROT_READ) == 0);
    CHECK(munmap(heap + 2 * MIB, 64 * KIB) == 0);
    CHECK(holds(heap, 2 * MIB, 2));
    CHECK(brk(heap + 3 * MIB) == 0 && brk(heap + 5 * MIB) == 0);
    CHECK(all_zero(heap + 3 * MIB, 2 * MIB));
    heap[5 * MIB - 1] = 1;
}

int main(void) {
    unsigned char *block = map_anon(8 * MIB);
    unsigned char *heap = sbrk(4 * MIB);
    CHECK(heap != (void *)-1);
    fill(block, 8 * MIB, 1);
    fill(heap, 4 * MIB, 2);
    for (int forks = 0; forks < 2; forks++) {
        pid_t child = (pid_t)syscall(SYS_clone, SIGCHLD, NULL, NULL, NULL, NULL);
        if (child == 0) {
            unsigned char *own = map_anon(64 * KIB);
            if (forks) {
                pid_t its = fork();
                if (its != 0) {
                    fill(block, MIB, 3);
                    _exit(wait_for(its));
                }
            }
            change_parts(block);
            change_heap(heap);
            CHECK(munmap(own, 64 * KIB) == 0);
            _exit(5);
        }
        CHECK(wait_for(child) == 5);
    }
    CHECK(holds(block, 8 * MIB, 1) && holds(heap, 4 * MIB, 2));
    return ok();
}

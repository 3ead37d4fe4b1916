/* mmap and mremap over other memory that fail for lack of room: some kernels have unmapped it by then, others have not. What is still
 * mapped behaves as before, and new blocks never come without memory. Regressions: memory mapped ahead of use counted as mapped although
 * the kernel had unmapped it, and the next block there faulted; a reserved page in the heap was taken for normal memory; and what
 * MAP_HUGETLB maps beyond the length it was given was handed out a second time. */
#include "guest.h"
#include <linux/memfd.h>
#include <linux/mman.h>

enum { BLOCKS = 16 };
static const size_t LARGE = 512ul << 30; /* more than there is, unless the kernel promises memory without end */

/* Blocks that are not in [from, to), where the program has something. */
static void map_blocks(const unsigned char *from, const unsigned char *to) {
    unsigned char *block[BLOCKS];
    for (int i = 0; i < BLOCKS; i++) {
        block[i] = map_anon(512 * KIB);
        CHECK(block[i] + 512 * KIB <= from || block[i] >= to);
        CHECK(all_zero(block[i], 512 * KIB));
        fill(block[i], 512 * KIB, (unsigned)i);
    }
    for (int i = 0; i < BLOCKS; i++) CHECK(holds(block[i], 512 * KIB, (unsigned)i) && munmap(block[i], 512 * KIB) == 0);
}

/* Where the program has a block at an address that it has found free. */
static void over_mappings(int moves) {
    unsigned char *room = mmap(NULL, LARGE, PROT_NONE, ANON | MAP_NORESERVE, -1, 0), *from = map_anon(PAGE);
    CHECK(room != MAP_FAILED && munmap(room, LARGE) == 0);
    fill(from, PAGE, 1);
    unsigned char *p = mmap(room, 3 * MIB, RW, ANON | MAP_FIXED_NOREPLACE, -1, 0);
    CHECK(p == room);
    fill(p, 3 * MIB, 2);
    void *got = moves ? mremap(from, PAGE, LARGE, MREMAP_MAYMOVE | MREMAP_FIXED, room) : mmap(room, LARGE, RW, ANON | MAP_FIXED, -1, 0);
    if (got != MAP_FAILED) {
        CHECK(munmap(got, LARGE) == 0);
        return;
    }
    CHECK(errno == ENOMEM);
    CHECK(holds(from, PAGE, 1));
    int is_left = msync(p, 3 * MIB, MS_ASYNC) == 0;
    CHECK(!is_left || holds(p, 3 * MIB, 2));
    map_blocks(p, is_left ? p + 3 * MIB : p);
    CHECK(munmap(p, 3 * MIB) == 0 && munmap(from, PAGE) == 0);
}

static void over_the_heap(void) {
    unsigned char *heap = sbrk(0);
    CHECK(sbrk((intptr_t)(-(uintptr_t)heap & (2 * MIB - 1))) != (void *)-1);
    heap = sbrk(6 * MIB);
    CHECK(heap != (void *)-1);
    fill(heap, 6 * MIB, 3);
    if (mmap(heap + 2 * MIB, LARGE, RW, ANON | MAP_FIXED, -1, 0) != MAP_FAILED || msync(heap, 6 * MIB, MS_ASYNC) != 0) return;
    unsigned char *page = heap + 2 * MIB + 5 * PAGE;
    if (is_done(mprotect(page, PAGE, PROT_READ))) {
        CHECK(fault_signal(page, WRITE_ACCESS) == SIGSEGV && fault_signal(page + PAGE, WRITE_ACCESS) == 0);
        page[PAGE]--;
        CHECK(is_done(mprotect(page, PAGE, RW)));
    }
    CHECK(holds(heap, 6 * MIB, 3));
    CHECK(madvise(page, PAGE, MADV_DONTNEED) == 0 && all_zero(page, PAGE));
    if (is_done(munmap(page, PAGE))) CHECK(is_gone(page));
    CHECK(holds(heap, 2 * MIB, 3) && sbrk(-(intptr_t)(6 * MIB)) != (void *)-1);
}

/* The kernel rounds the length up to whole pages. */
static void over_more_than_was_asked(int by_file) {
    int file = by_file ? memfd_create("huge", MFD_HUGETLB | MFD_HUGE_2MB) : -1;
    int flags = by_file ? MAP_SHARED : ANON | MAP_HUGETLB | MAP_HUGE_2MB;
    unsigned char *p = map_anon(10 * MIB), *at = (unsigned char *)(((uintptr_t)p + 2 * MIB - 1) & ~(2 * MIB - 1));
    CHECK(munmap(at + 3 * MIB, (size_t)(p + 10 * MIB - (at + 3 * MIB))) == 0);
    unsigned char *got = mmap(at, 3 * MIB, RW, flags | MAP_FIXED, file, 0);
    if (got == at) {
        got[4 * MIB - 1] = 7;
        map_blocks(at, at + 4 * MIB);
        CHECK(got[4 * MIB - 1] == 7 && munmap(got, 4 * MIB) == 0);
    }
    if (by_file && file >= 0) close(file);
}

int main(void) {
    over_mappings(1);
    over_mappings(0);
    over_the_heap();
    over_more_than_was_asked(0);
    over_more_than_was_asked(1);
    return ok();
}

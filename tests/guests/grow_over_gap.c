/* A block that grows in place, to the block after it, has its properties to the end. Regression: memory mapped in advance, before the next
 * block, became part of it as it was: a forked child read there what was to be wiped, and nothing was locked. */
#include "guest.h"

static void wipe(unsigned char *p, size_t n) { CHECK(madvise(p, n, MADV_WIPEONFORK) == 0); }
static int is_wiped(unsigned char *p) {
    *p = 7;
    pid_t child = fork();
    if (child == 0) _exit(*(volatile unsigned char *)p);
    return wait_for(child) == 0;
}
static void dont_fork(unsigned char *p, size_t n) { CHECK(madvise(p, n, MADV_DONTFORK) == 0); }
static int is_kept_back(unsigned char *p) {
    *p = 7;
    pid_t child = fork();
    if (child == 0) _exit(fault_signal(p, READ_ACCESS) == SIGSEGV ? 0 : 1);
    return wait_for(child) == 0;
}
static void lock(unsigned char *p, size_t n) {
    if (mlock2(p, n, MLOCK_ONFAULT) != 0) _exit(0); /* beyond the limit */
}
static int is_locked(unsigned char *p) { return is_all(p, PAGE, " lo", " lo"); }

/* A block with room behind it, which it reached by growing elsewhere. */
static unsigned char *moved_block(void (*put)(unsigned char *, size_t), size_t bytes) {
    unsigned char *p = map_anon(bytes / 2), *neighbour = map_anon(bytes / 2);
    fill(p, bytes / 2, 1);
    *neighbour = 1;
    put(p, bytes / 2);
    unsigned char *room = mmap(NULL, 32 * MIB, PROT_NONE, ANON | MAP_NORESERVE, -1, 0);
    CHECK(room != MAP_FAILED && munmap(room, 32 * MIB) == 0);
    unsigned char *grown = mremap(p, bytes / 2, bytes, MREMAP_MAYMOVE);
    CHECK(grown != MAP_FAILED);
    if ((uintptr_t)grown >> 44 == 6) return grown; /* a governed one has room there */
    CHECK(mremap(grown, bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, room + 2 * MIB) == room + 2 * MIB);
    return room + 2 * MIB;
}

static void check(const char *name, void (*put)(unsigned char *, size_t), int (*has)(unsigned char *)) {
    enum { BYTES = 128 << 10 };
    unsigned char *block = moved_block(put, BYTES);
    unsigned char *tile = (unsigned char *)((uintptr_t)block & ~(2 * MIB - 1));
    unsigned char *next = mmap(tile + 5 * MIB, 64 * KIB, RW, ANON | MAP_FIXED_NOREPLACE, -1, 0);
    CHECK(next == tile + 5 * MIB);
    *next = 1;
    size_t most = (size_t)(next - block);
    CHECK(mremap(block, BYTES, most, 0) == block);
    CHECK(holds(block, BYTES / 2, 1) && all_zero(block + BYTES, most - BYTES));
    for (size_t at = BYTES; at < most; at += MIB / 2)
        if (!has(block + at)) FAIL("%s: not %zu KiB behind the block's start", name, at / KIB);
    if (!has(next - PAGE)) FAIL("%s: not at the end", name);
    _exit(0);
}

int main(void) {
    if (has_reserved_pages()) return ok(); /* (what grows onto them begins anew) */
    pid_t child = fork();
    if (child == 0) check("WIPEONFORK", wipe, is_wiped);
    CHECK(wait_for(child) == 0);
    child = fork();
    if (child == 0) check("DONTFORK", dont_fork, is_kept_back);
    CHECK(wait_for(child) == 0);
    child = fork();
    if (child == 0) check("mlock2", lock, is_locked);
    CHECK(wait_for(child) == 0);
    return ok();
}

/* Pages that the kernel still reads when the program gives them back: what is in a pipe stays what was put there, whatever the
 * program gets at the same addresses afterwards. */
#include "guest.h"
#include <malloc.h>
#include <sys/uio.h>

#define BYTES (32 * KIB)
#define ROUNDS 20

static int ends[2];

static void put_into_pipe(unsigned char *p, unsigned seed) {
    fill(p, BYTES, seed);
    struct iovec part = {.iov_base = p, .iov_len = BYTES};
    CHECK(vmsplice(ends[1], &part, 1, 0) == (ssize_t)BYTES);
}

static void check_pipe(const char *way, unsigned seed) {
    static unsigned char got[BYTES];
    size_t have = 0;
    while (have < BYTES) {
        ssize_t more = read(ends[0], got + have, BYTES - have);
        CHECK(more > 0);
        have += (size_t)more;
    }
    if (!holds(got, BYTES, seed)) FAIL("%s, round %u: the pipe's reader gets other bytes", way, seed);
}

static void unmapped(unsigned round) {
    unsigned char *p = map_anon(BYTES);
    put_into_pipe(p, round);
    CHECK(munmap(p, BYTES) == 0);
    p = map_anon(BYTES);
    CHECK(all_zero(p, BYTES));
    fill(p, BYTES, 99);
    check_pipe("munmap", round);
    CHECK(munmap(p, BYTES) == 0);
}

static void unmapped_in_part(unsigned round) {
    unsigned char *p = map_anon(6 * MIB), *part = p + 3 * MIB;
    put_into_pipe(part, round);
    fill(p, PAGE, 1);
    CHECK(munmap(part, BYTES) == 0);
    unsigned char *q = map_anon(BYTES);
    CHECK(all_zero(q, BYTES));
    fill(q, BYTES, 99);
    check_pipe("munmap of a part", round);
    CHECK(munmap(p, 6 * MIB) == 0 && munmap(q, BYTES) == 0);
}

static void lowered(unsigned round) {
    unsigned char *p = sbrk(BYTES + PAGE);
    CHECK(p != (void *)-1);
    p = (unsigned char *)(((uintptr_t)p + PAGE - 1) & ~(PAGE - 1));
    put_into_pipe(p, round);
    CHECK(brk(p) == 0 && brk(p + BYTES) == 0);
    CHECK(all_zero(p, BYTES));
    fill(p, BYTES, 99);
    check_pipe("brk", round);
    CHECK(brk(p) == 0);
}

static void discarded(unsigned round) {
    unsigned char *p = map_anon(4 * MIB), *part = p + MIB;
    memset(p, 7, 4 * MIB);
    put_into_pipe(part, round);
    CHECK(madvise(part, BYTES, MADV_DONTNEED) == 0);
    CHECK(all_zero(part, BYTES) && part[-1] == 7 && part[BYTES] == 7);
    fill(part, BYTES, 99);
    check_pipe("MADV_DONTNEED", round);
    CHECK(munmap(p, 4 * MIB) == 0);
}

static void replaced(unsigned round) {
    unsigned char *p = map_anon(4 * MIB), *part = p + MIB;
    memset(p, 7, 4 * MIB);
    put_into_pipe(part, round);
    CHECK(mmap(part, BYTES, RW, ANON | MAP_FIXED, -1, 0) == part);
    CHECK(all_zero(part, BYTES) && part[-1] == 7 && part[BYTES] == 7);
    fill(part, BYTES, 99);
    check_pipe("MAP_FIXED", round);
    CHECK(munmap(p, 4 * MIB) == 0);
}

static void shrunk(unsigned round) {
    unsigned char *p = map_anon(2 * MIB + BYTES);
    put_into_pipe(p + 2 * MIB, round);
    CHECK(mremap(p, 2 * MIB + BYTES, 2 * MIB, 0) == p);
    unsigned char *q = mremap(p, 2 * MIB, 2 * MIB + BYTES, MREMAP_MAYMOVE);
    CHECK(q != MAP_FAILED && all_zero(q + 2 * MIB, BYTES));
    fill(q + 2 * MIB, BYTES, 99);
    check_pipe("mremap to less", round);
    CHECK(munmap(q, 2 * MIB + BYTES) == 0);
}

static void moved(unsigned round) {
    unsigned char *p = map_anon(2 * MIB), *wall = map_anon(PAGE);
    put_into_pipe(p + MIB, round);
    unsigned char *q = mremap(p, 2 * MIB, 8 * MIB, MREMAP_MAYMOVE);
    CHECK(q != MAP_FAILED && holds(q + MIB, BYTES, round));
    CHECK(munmap(q, 8 * MIB) == 0);
    p = map_anon(8 * MIB);
    memset(p, 99, 8 * MIB);
    check_pipe("mremap to more", round);
    CHECK(munmap(p, 8 * MIB) == 0 && munmap(wall, PAGE) == 0);
}

/* malloc trims the end of a thread's arena by MADV_DONTNEED, again and again. */
static void *trimmed(void *nothing) {
    unsigned char *blocks[64];
    for (unsigned round = 1; round <= ROUNDS; round++) {
        for (int i = 0; i < 64; i++) CHECK((blocks[i] = malloc(100 * KIB)) != NULL);
        unsigned char *page = (unsigned char *)(((uintptr_t)blocks[60] + PAGE - 1) & ~(PAGE - 1));
        put_into_pipe(page, round);
        for (int i = 0; i < 64; i++) free(blocks[i]);
        for (int i = 0; i < 64; i++) CHECK((blocks[i] = malloc(100 * KIB)) != NULL);
        /* Only where the memory was really given back is it new: then writing to it is nobody else's business. */
        if (all_zero(page + 16, BYTES - 64)) {
            fill(page + 16, BYTES - 64, 99);
            check_pipe("a trimmed arena", round);
        } else {
            check_pipe("an arena", round);
        }
        for (int i = 0; i < 64; i++) free(blocks[i]);
    }
    return nothing;
}

int main(void) {
    CHECK(pipe(ends) == 0 && fcntl(ends[1], F_SETPIPE_SZ, 256 * KIB) >= (int)BYTES);
    void (*const ways[])(unsigned) = {unmapped, unmapped_in_part, lowered, discarded, replaced, shrunk, moved};
    for (size_t way = 0; way < sizeof ways / sizeof *ways; way++)
        for (unsigned round = 1; round <= ROUNDS; round++) ways[way](round);
    CHECK(mallopt(M_MMAP_THRESHOLD, 1 << 30) == 1 && mallopt(M_TRIM_THRESHOLD, 64 << 10) == 1);
    pthread_join(start(trimmed, NULL), NULL);
    return ok();
}

/* Part of a protected stretch is given back, discarded, opened or mapped anew: the rest keeps contents and protection. */
#include "guest.h"

#define TILE (2 * MIB)
#define TOTAL (4 * TILE)

static unsigned char *whole, *stretch; /* aligned to a tile, TOTAL bytes, all of it with one protection */

static void prepare(int prot) {
    if (whole != NULL) CHECK(munmap(whole, TOTAL + TILE) == 0);
    whole = map_anon(TOTAL + TILE);
    unsigned char *p = whole;
    stretch = (unsigned char *)(((uintptr_t)p + TILE - 1) & ~(TILE - 1));
    fill(stretch, TOTAL, 1);
    CHECK(mprotect(stretch, TOTAL, prot) == 0);
}

static void still_guarded(unsigned char *at, int prot) {
    CHECK(fault_signal(at, READ_ACCESS) == (prot & PROT_READ ? 0 : SIGSEGV));
    if (prot & PROT_WRITE)
        *at = *at;
    else
        CHECK(fault_signal(at, WRITE_ACCESS) == SIGSEGV);
}

/* What lies around [from, to) is as it was. */
static void rest_is_whole(size_t from, size_t to, int prot) {
    still_guarded(stretch + from - PAGE, prot);
    still_guarded(stretch + to, prot);
    CHECK(mprotect(stretch, from, RW) == 0 && holds(stretch, from, 1));
    CHECK(mprotect(stretch + to, TOTAL - to, RW) == 0 && holds_from(stretch + to, TOTAL - to, 1, to));
}

static void each_change(int prot) {
    const size_t ranges[][2] = {
        {TILE + 10 * PAGE, TILE + 20 * PAGE},     /* inside one tile */
        {TILE - 3 * PAGE, TILE + 5 * PAGE},       /* across two */
        {TILE + PAGE, 3 * TILE - PAGE},           /* nearly two */
    };
    for (size_t i = 0; i < sizeof ranges / sizeof *ranges; i++) {
        size_t from = ranges[i][0], to = ranges[i][1];
        unsigned char *part;
        prepare(prot);
        part = stretch + from;
        CHECK(munmap(part, to - from) == 0);
        rest_is_whole(from, to, prot);
        CHECK(mmap(part, to - from, RW, ANON | MAP_FIXED, -1, 0) == part && all_zero(part, to - from));

        prepare(prot);
        part = stretch + from;
        CHECK(madvise(part, to - from, MADV_DONTNEED) == 0);
        still_guarded(part, prot);
        CHECK(mprotect(part, to - from, RW) == 0 && all_zero(part, to - from));
        fill(part, to - from, 3);
        rest_is_whole(from, to, prot);

        prepare(prot);
        part = stretch + from;
        CHECK(mprotect(part, to - from, RW) == 0 && holds_from(part, to - from, 1, from));
        fill(part, to - from, 3);
        rest_is_whole(from, to, prot);

        prepare(prot);
        part = stretch + from;
        CHECK(mmap(part, to - from, RW, ANON | MAP_FIXED, -1, 0) == part && all_zero(part, to - from));
        fill(part, to - from, 3);
        rest_is_whole(from, to, prot);

        prepare(prot);
        part = stretch + from;
        unsigned char *moved = mremap(part, to - from, 2 * TOTAL, MREMAP_MAYMOVE);
        CHECK(moved != MAP_FAILED);
        still_guarded(moved, prot);
        CHECK(mprotect(moved, to - from, RW) == 0 && holds_from(moved, to - from, 1, from));
        CHECK(munmap(moved, 2 * TOTAL) == 0);
        rest_is_whole(from, to, prot);
    }
}

static void through_fork(int prot) {
    prepare(prot);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        still_guarded(stretch + TILE, prot);
        CHECK(mprotect(stretch, TOTAL, RW) == 0 && holds(stretch, TOTAL, 1));
        _exit(0);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    still_guarded(stretch + TILE, prot);
    CHECK(mprotect(stretch, TOTAL, RW) == 0 && holds(stretch, TOTAL, 1));
}

static volatile int finished;

static void *keep_busy(void *nothing) {
    while (!finished) usleep(100);
    return nothing;
}

int main(void) {
    const int protections[] = {PROT_NONE, PROT_READ, PROT_READ | PROT_EXEC};
    for (int i = 0; i < 3; i++) {
        each_change(protections[i]);
        through_fork(protections[i]);
    }
    each_change(RW | PROT_EXEC);
    pthread_t other;
    CHECK(pthread_create(&other, NULL, keep_busy, NULL) == 0);
    for (int i = 0; i < 3; i++) each_change(protections[i]);
    finished = 1;
    CHECK(pthread_join(other, NULL) == 0);
    return ok();
}

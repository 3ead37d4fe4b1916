/* What the program put on a block ends with the block: the next one at its place, the heap above a break that was lowered, and
 * memory beside it begin without. What a block grows by carries what the block does. */
#include "guest.h"
#include <sys/prctl.h>
#include <sys/syscall.h>

#define BYTES (64 * KIB)

static void dont_fork(unsigned char *p, size_t n) { CHECK(madvise(p, n, MADV_DONTFORK) == 0); }
static void wipe_on_fork(unsigned char *p, size_t n) { CHECK(madvise(p, n, MADV_WIPEONFORK) == 0); }
static void lock(unsigned char *p, size_t n) { CHECK(mlock(p, n) == 0); }
static void lock_on_fault(unsigned char *p, size_t n) { CHECK(mlock2(p, n, MLOCK_ONFAULT) == 0); }
static void dont_dump(unsigned char *p, size_t n) { CHECK(madvise(p, n, MADV_DONTDUMP) == 0); }
static void at_random(unsigned char *p, size_t n) { CHECK(madvise(p, n, MADV_RANDOM) == 0); }
static void interleave(unsigned char *p, size_t n) {
    unsigned long nodes = 1;
    if (syscall(SYS_mbind, p, n, 3, &nodes, 2, 0) != 0) /* part of a reserved page cannot have a policy of its own */
        CHECK(errno == ENOSYS || errno == EPERM || (errno == EINVAL && has_reserved_pages()));
}
static void name(unsigned char *p, size_t n) { prctl(0x53564d41, 0, p, n, "block"); }

/* Lines of smaps that tell what the mapping around `p` carries (the kernel's own flags of page sizes apart). */
static void carried(unsigned char *p, char *out, size_t room) {
    FILE *maps = fopen("/proc/self/smaps", "r");
    char line[512];
    int inside = 0;
    CHECK(maps);
    *out = 0;
    while (fgets(line, sizeof line, maps)) {
        uintptr_t from, to;
        if (sscanf(line, "%lx-%lx ", &from, &to) == 2) {
            inside = from <= (uintptr_t)p && (uintptr_t)p < to;
            char *bracket = strchr(line, '[');
            if (inside && bracket && strncmp(bracket, "[heap]", 6) != 0) strncat(out, bracket, room - strlen(out) - 1);
        } else if (inside && strncmp(line, "VmFlags:", 8) == 0) {
            for (char *word = strtok(line + 8, " \n"); word; word = strtok(NULL, " \n"))
                if (strcmp(word, "hg") && strcmp(word, "nh") && strcmp(word, "sd") && strcmp(word, "rr") &&
                    strcmp(word, "ht") && strcmp(word, "de") && strcmp(word, "ac") && strcmp(word, "gd")) {
                    strncat(out, word, room - strlen(out) - 1);
                    strncat(out, " ", room - strlen(out) - 1);
                }
        }
    }
    fclose(maps);
}

static int forked_child_has(unsigned char *p, unsigned char wanted) {
    pid_t child = fork();
    if (child == 0) _exit(*(volatile unsigned char *)p == wanted ? 0 : 3);
    return wait_for(child) == 0;
}

struct kind {
    const char *name;
    void (*put)(unsigned char *, size_t);
};

static void check_new(const char *what, const char *kind, unsigned char *p, const char *expected) {
    char has[256];
    carried(p, has, sizeof has);
    if (strcmp(has, expected) != 0) FAIL("%s after %s: carries \"%s\" instead of \"%s\"", what, kind, has, expected);
    *p = 7;
    if (!forked_child_has(p, 7)) FAIL("%s after %s: a forked child does not have it", what, kind);
}

int main(void) {
    const struct kind kinds[] = {{"DONTFORK", dont_fork}, {"WIPEONFORK", wipe_on_fork}, {"mlock", lock},
                                 {"mlock2", lock_on_fault}, {"DONTDUMP", dont_dump}, {"RANDOM", at_random},
                                 {"mbind", interleave}, {"a name", name}};
    char plain[256], plain_heap[256];
    unsigned char *p = map_anon(BYTES);
    *p = 1;
    carried(p, plain, sizeof plain);
    unsigned char *base = (unsigned char *)(((uintptr_t)sbrk(MIB) + 2 * PAGE) & ~(PAGE - 1));
    *base = 1;
    carried(base, plain_heap, sizeof plain_heap);
    CHECK(munmap(p, BYTES) == 0);

    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        for (int round = 0; round < 3; round++) {
            p = map_anon(BYTES);
            fill(p, BYTES, 1);
            kinds[i].put(p, BYTES);
            CHECK(munmap(p, BYTES) == 0);
            p = map_anon(BYTES);
            check_new("a new block", kinds[i].name, p, plain);
            CHECK(munmap(p, BYTES) == 0);

            unsigned char *top = base + MIB; /* the heap above a break that was lowered */
            CHECK(brk(top) == 0);
            fill(base + 100 * PAGE, 20 * PAGE, 1);
            kinds[i].put(base + 100 * PAGE, 20 * PAGE);
            CHECK(brk(base + 100 * PAGE) == 0 && brk(top) == 0);
            check_new("the heap raised again", kinds[i].name, base + 105 * PAGE, plain_heap);
        }
    }

    /* Advice beyond the end of a block, and of the heap: an error, and none of it on what comes to lie there. */
    p = map_anon(BYTES);
    *p = 1;
    int in_pool = (uintptr_t)p >> 44 == 6; /* memory there that nobody was given is nobody's */
    if (in_pool || mincore(p + BYTES, PAGE, (unsigned char[1]){0}) != 0) {
        CHECK_ERRNO(madvise(p, BYTES + 4 * PAGE, MADV_DONTFORK), -1, ENOMEM);
        unsigned char *q = map_anon(BYTES);
        check_new("the block after it", "advice too long", q, plain);
        CHECK(munmap(q, BYTES) == 0);
    }
    CHECK(munmap(p, BYTES) == 0);
    unsigned char *top = base + 100 * PAGE;
    CHECK(brk(top) == 0);
    CHECK_ERRNO(madvise(top - PAGE, 3 * PAGE, MADV_DONTDUMP), -1, ENOMEM);
    CHECK_ERRNO(mprotect(top - PAGE, 3 * PAGE, PROT_READ), -1, ENOMEM);
    CHECK(brk(top + 20 * PAGE) == 0);
    check_new("the heap", "advice too long", top + PAGE, plain_heap);
    CHECK(mprotect(top - PAGE, PAGE, RW) == 0 && madvise(top - PAGE, PAGE, MADV_DODUMP) == 0);

    /* What a block grows by, in place or not, carries what the block does; its neighbour does not. */
    for (size_t bytes = BYTES; bytes <= 4 * MIB + BYTES; bytes += 4 * MIB) {
        p = map_anon(bytes);
        fill(p, bytes, 1);
        dont_fork(p, bytes);
        unsigned char *grown = mremap(p, bytes, bytes + BYTES, MREMAP_MAYMOVE);
        CHECK(grown != MAP_FAILED && holds(grown, bytes, 1));
        grown[bytes] = 7;
        /* (What grows onto reserved pages begins anew.) */
        if (!has_reserved_pages() && forked_child_has(grown + bytes, 7)) FAIL("what %zu bytes grew by is inherited", bytes);
        unsigned char *neighbour = map_anon(BYTES);
        check_new("a neighbour", "growth", neighbour, plain);
        CHECK(munmap(neighbour, BYTES) == 0 && munmap(grown, bytes + BYTES) == 0);
    }
    return ok();
}

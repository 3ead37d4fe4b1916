/* A block that grows carries in its new part what the program put on the old one, wherever it grows to. For every state
 * that mremap hands on, and for blocks that grow over the ends of pages of 2 MiB, beside memory that was given back, and
 * beside a neighbour, printed is what the grown block has everywhere, and what it has somewhere. The lines must be the
 * same natively and under every policy. */
#include "../guest.h"

#include <linux/mempolicy.h>
#include <linux/prctl.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#ifndef PR_SET_VMA
#define PR_SET_VMA 0x53564d41
#define PR_SET_VMA_ANON_NAME 0
#endif

/* ---- states ---- */

static long advise(unsigned char *p, size_t bytes, int advice) { return madvise(p, bytes, advice) ? -errno : 0; }

#define ADVICE(function, advice)                                                                           \
    static long function(unsigned char *p, size_t bytes) { return advise(p, bytes, advice); }
ADVICE(dont_fork, MADV_DONTFORK)
ADVICE(wipe_on_fork, MADV_WIPEONFORK)
ADVICE(dont_dump, MADV_DONTDUMP)
ADVICE(mergeable, MADV_MERGEABLE)
ADVICE(sequential, MADV_SEQUENTIAL)

static long nothing(unsigned char *p, size_t bytes) { return p && bytes ? 0 : -1; }
static long locked(unsigned char *p, size_t bytes) { return mlock(p, bytes) ? -errno : 0; }
static long executable(unsigned char *p, size_t bytes) { return mprotect(p, bytes, RW | PROT_EXEC) ? -errno : 0; }

static long keyed(unsigned char *p, size_t bytes) {
    static int key = -1;
    if (key < 0) key = pkey_alloc(0, 0);
    if (key < 0) return -errno;
    return pkey_mprotect(p, bytes, RW, key) ? -errno : 0;
}

static long interleaved(unsigned char *p, size_t bytes) {
    unsigned long node = 1;
    return syscall(SYS_mbind, p, bytes, MPOL_INTERLEAVE, &node, 8, 0) ? -errno : 0;
}

static long named(unsigned char *p, size_t bytes) {
    return prctl(PR_SET_VMA, PR_SET_VMA_ANON_NAME, p, bytes, "of the block") ? -errno : 0;
}

static const struct state {
    const char *name;
    long (*set)(unsigned char *block, size_t bytes);
} STATES[] = {
    {"nothing", nothing},       {"DONTFORK", dont_fork}, {"WIPEONFORK", wipe_on_fork}, {"DONTDUMP", dont_dump}, {"MERGEABLE", mergeable},
    {"SEQUENTIAL", sequential}, {"mlock", locked},       {"PROT_EXEC", executable},    {"pkey", keyed},         {"mbind-INTERLEAVE", interleaved},
    {"name", named},
};

/* ---- blocks: the state is set, then it grows ---- */

struct growth {
    const char *name;
    size_t from, to;
    enum {
        ALONE,  /* mapped so */
        CUT,    /* what is left of a larger one */
        OVER,   /* the same, mapped over anew */
        GAP,    /* what is left before a gap and a neighbour */
        HEMMED, /* before a neighbour */
    } kind;
};

static const struct growth GROWTHS[] = {
    {"page", PAGE, 24 * PAGE, ALONE},
    {"page-cut", PAGE, 24 * PAGE, CUT},
    {"page-over", PAGE, 24 * PAGE, OVER},
    {"page-gap", PAGE, 24 * PAGE, GAP},
    {"page-hemmed", PAGE, 24 * PAGE, HEMMED},
    {"64K-to-3M", 64 * KIB, 3 * MIB, ALONE},
    {"64K-cut-to-3M", 64 * KIB, 3 * MIB, CUT},
    {"64K-over-to-3M", 64 * KIB, 3 * MIB, OVER},
    {"64K-gap-to-3M", 64 * KIB, 3 * MIB, GAP},
    {"64K-hemmed-to-3M", 64 * KIB, 3 * MIB, HEMMED},
    {"2M-to-12M", 2 * MIB, 12 * MIB, ALONE},
    {"2M-cut-to-12M", 2 * MIB, 12 * MIB, CUT},
    {"2M-gap-to-12M", 2 * MIB, 12 * MIB, GAP},
    {"2M-hemmed-to-12M", 2 * MIB, 12 * MIB, HEMMED},
    {"5M-to-40M", 5 * MIB, 40 * MIB, ALONE},
    {"5M-cut-to-40M", 5 * MIB, 40 * MIB, CUT},
};

enum { GAP_BYTES = 15 * PAGE, NEIGHBOUR_BYTES = 15 * PAGE };

static unsigned char *taken(const struct growth *growth, unsigned char **neighbour) {
    int gap = growth->kind == CUT || growth->kind == OVER || growth->kind == GAP;
    int has_neighbour = growth->kind == GAP || growth->kind == HEMMED;
    size_t before = growth->from + (gap ? GAP_BYTES : 0), wide = before + (has_neighbour ? NEIGHBOUR_BYTES : 0);
    unsigned char *block = map_anon(wide);
    memset(block, 0xA5, wide);
    if (gap) CHECK(munmap(block + growth->from, GAP_BYTES) == 0);
    if (growth->kind == OVER) CHECK(mmap(block, growth->from, RW, ANON | MAP_FIXED | MAP_STACK, -1, 0) == block);
    *neighbour = has_neighbour ? block + before : NULL;
    memset(block, 0xA5, growth->from);
    return block;
}

/* ---- what the grown block has ---- */

static char smaps[8 << 20]; /* the pool of frames is thousands of mappings */

static void read_smaps(void) {
    int fd = open("/proc/self/smaps", O_RDONLY);
    size_t length = 0;
    CHECK(fd >= 0);
    for (ssize_t got; (got = read(fd, smaps + length, sizeof smaps - 1 - length)) > 0;) length += (size_t)got;
    CHECK(close(fd) == 0 && length < sizeof smaps - 1);
    smaps[length] = 0;
}

/* Flags in smaps that mremap hands on. */
static const char *const FLAGS[] = {"dc", "wf", "dd", "mg", "lo", "sr", "ex"};
enum { FLAG_COUNT = sizeof FLAGS / sizeof *FLAGS };

static void print_mappings(const unsigned char *block, size_t bytes) {
    int flagged[FLAG_COUNT] = {0}, mappings = 0, inside = 0, names = 0, keys = 0;
    read_smaps();
    for (char *line = strtok(smaps, "\n"); line; line = strtok(NULL, "\n")) {
        unsigned long long from, to;
        if (sscanf(line, "%llx-%llx ", &from, &to) == 2 && strchr(line, '-') < strchr(line, ' ')) {
            inside = from < (uintptr_t)block + bytes && to > (uintptr_t)block;
            names += inside && strstr(line, "of the block") != NULL;
            mappings += inside;
        }
        if (!inside) continue;
        if (strncmp(line, "ProtectionKey:", 14) == 0) keys += strtoull(line + 14, NULL, 10) != 0;
        if (strncmp(line, "VmFlags:", 8) != 0) continue;
        for (int i = 0; i < FLAG_COUNT; i++) {
            char word[8];
            snprintf(word, sizeof word, " %s ", FLAGS[i]);
            flagged[i] += strstr(line, word) != NULL;
        }
    }
    for (int i = 0; i < FLAG_COUNT; i++)
        if (flagged[i]) printf(" %s %s;", FLAGS[i], flagged[i] == mappings ? "everywhere" : "in part");
    if (keys) printf(" key %s;", keys == mappings ? "everywhere" : "in part");
    if (names) printf(" name %s;", names == mappings ? "everywhere" : "in part");
}

static int policy_of(const unsigned char *block) {
    int mode = -1;
    return syscall(SYS_get_mempolicy, &mode, NULL, 0, block, MPOL_F_ADDR) ? -errno : mode;
}

static void one(const struct state *state, const struct growth *growth) {
    unsigned char *neighbour, *block = taken(growth, &neighbour);
    printf("%s %s: %ld", state->name, growth->name, state->set(block, growth->from));
    block = mremap(block, growth->from, growth->to, MREMAP_MAYMOVE);
    printf(", grown %d;", block == MAP_FAILED ? -errno : 0);
    if (block != MAP_FAILED) {
        printf(" kept %d; zero %d;", block[0] == 0xA5 && block[growth->from - 1] == 0xA5, all_zero(block + growth->from, growth->to - growth->from));
        block[growth->to - 1] = 1;
        print_mappings(block, growth->to);
        printf(" policies %d %d\n", policy_of(block), policy_of(block + growth->to - 1));
        CHECK(munmap(block, growth->to) == 0);
    }
    if (neighbour) CHECK(munmap(neighbour, NEIGHBOUR_BYTES) == 0);
    fflush(stdout);
}

int main(void) {
    static char buffer[1 << 16]; /* and so stdio leaves the heap alone */
    CHECK(setvbuf(stdout, buffer, _IOFBF, sizeof buffer) == 0);
    for (size_t state = 0; state < sizeof STATES / sizeof *STATES; state++)
        for (size_t growth = 0; growth < sizeof GROWTHS / sizeof *GROWTHS; growth++) {
            alarm(20);
            one(&STATES[state], &GROWTHS[growth]);
        }
    return 0;
}

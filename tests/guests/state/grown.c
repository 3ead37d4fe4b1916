/* A block that grows carries in its new part what the program put on the old one, wherever it grows to. For every state
 * that mremap hands on, and for blocks that grow over the ends of pages of 2 MiB, beside memory that was given back, and
 * beside a neighbour, printed is what the grown block has everywhere, and what it has somewhere. The lines must be the
 * same natively and under every policy. */
#include "states.h"

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
        AFTER,  /* without the state, in the place of a part of a block that has it and had grown */
    } kind;
};

static const struct growth GROWTHS[] = {
    {"page", PAGE, 24 * PAGE, ALONE},
    {"page-cut", PAGE, 24 * PAGE, CUT},
    {"page-over", PAGE, 24 * PAGE, OVER},
    {"page-gap", PAGE, 24 * PAGE, GAP},
    {"page-hemmed", PAGE, 24 * PAGE, HEMMED},
    {"page-after", PAGE, 40 * PAGE, AFTER},
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

/* Flags in smaps that mremap hands on. */
static const char *const FLAGS[] = {"dc", "wf", "dd", "mg", "lo", "sr", "ex"};
enum { FLAG_COUNT = sizeof FLAGS / sizeof *FLAGS };

static const char *where(int some, int all) { return some == all ? "everywhere" : "in part"; }

static void print_mappings(const unsigned char *block, size_t bytes) {
    struct mappings found = mappings_of(block, bytes, FLAGS, FLAG_COUNT);
    for (int i = 0; i < FLAG_COUNT; i++)
        if (found.flagged[i]) printf(" %s %s;", FLAGS[i], where(found.flagged[i], found.count));
    if (found.keyed) printf(" key %s;", where(found.keyed, found.count));
    if (found.named) printf(" name %s;", where(found.named, found.count));
}

static void one(const struct state *state, const struct growth *growth) {
    unsigned char *neighbour, *block;
    unsigned char *other = NULL, *first = NULL;
    if (growth->kind == AFTER) {
        first = map_anon(16 * PAGE);
        other = map_anon(2 * MIB - 16 * PAGE);
        printf("%s %s: %ld", state->name, growth->name, state->set(other, 2 * MIB - 16 * PAGE));
        other = mremap(other, 2 * MIB - 16 * PAGE, 2 * MIB - 6 * PAGE, MREMAP_MAYMOVE);
        CHECK(other != MAP_FAILED && munmap(other + 2 * MIB - 11 * PAGE, 5 * PAGE) == 0);
    }
    block = taken(growth, &neighbour);
    if (growth->kind != AFTER) printf("%s %s: %ld", state->name, growth->name, state->set(block, growth->from));
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
    if (other) CHECK(munmap(other, 2 * MIB - 11 * PAGE) == 0 && munmap(first, 16 * PAGE) == 0);
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

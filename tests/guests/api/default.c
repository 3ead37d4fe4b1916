/* A default of the program's own, under a policy whose default is page colouring with 64 colours and whose rule for
 * mappings of 4 MiB and more is bin hopping with 16. */
#include "api.h"

enum { PAGES = 200 };

static void check_bins(unsigned char *p, uint64_t colors) {
    for (size_t i = 0; i < PAGES; i++) {
        p[i * PAGE] = 1;
        CHECK(i == 0 || frame_of(p + i * PAGE) % colors == (frame_of(p + (i - 1) * PAGE) + 1) % colors);
    }
}

static unsigned char own[PAGES * PAGE] __attribute__((aligned(4096)));

/* What a hint covered is the policy's again when it is taken back, and what is mapped where hinted memory was begins
 * without one. */
static void hints_end(void) {
    struct pagelab_hint hint = hint_of(PAGELAB_RANDOM, 5);
    CHECK_API(pagelab_strategy_at(own), PAGELAB_PAGE_COLORING);
    CHECK_API(pagelab_set_range(own, sizeof own, &hint), 0);
    CHECK_API(pagelab_strategy_at(own + PAGE), PAGELAB_RANDOM);
    CHECK_API(pagelab_clear_range(own, sizeof own), 0);
    CHECK_API(pagelab_strategy_at(own + PAGE), PAGELAB_PAGE_COLORING);
    memset(own, 1, sizeof own);
    CHECK_API(pagelab_remap_range(own, sizeof own, NULL), 0);
    CHECK_COLORED(own, PAGES, 64);
    unsigned char *p = map_anon(PAGES * PAGE);
    CHECK_API(pagelab_set_range(p, PAGES * PAGE, &hint), 0);
    CHECK(munmap(p, PAGES * PAGE) == 0);
    unsigned char *again = mmap(p, PAGES * PAGE, RW, ANON, -1, 0);
    CHECK(again == p);
    CHECK_API(pagelab_strategy_at(p), PAGELAB_PAGE_COLORING);
}

int main(void) {
    hints_end();
    unsigned char *a = map_anon(PAGES * PAGE);
    memset(a, 1, PAGES * PAGE);
    CHECK_COLORED(a, PAGES, 64);
    struct pagelab_hint hint = hint_of(PAGELAB_PAGE_COLORING, 25);
    CHECK_API(pagelab_set_default(&hint), 0);
    unsigned char *b = map_anon(PAGES * PAGE);
    memset(b, 1, PAGES * PAGE);
    CHECK_COLORED(b, PAGES, 25);
    CHECK_COLORED(a, PAGES, 64); /* stays until it is told to move */
    unsigned char *large = map_anon(4 * MIB);
    CHECK_API(pagelab_strategy_at(large), PAGELAB_BIN_HOPPING);
    check_bins(large, 16);
    unsigned char *ranged = map_anon(PAGES * PAGE);
    struct pagelab_hint own = hint_of(PAGELAB_PAGE_COLORING, 7);
    CHECK_API(pagelab_set_range(ranged, PAGES * PAGE, &own), 0);
    memset(ranged, 1, PAGES * PAGE);
    CHECK_COLORED(ranged, PAGES, 7);
    CHECK_API(pagelab_remap_range(a, PAGES * PAGE, NULL), 0);
    CHECK_COLORED(a, PAGES, 25);
    CHECK_API(pagelab_set_default(NULL), 0);
    unsigned char *c = map_anon(PAGES * PAGE);
    memset(c, 1, PAGES * PAGE);
    CHECK_COLORED(c, PAGES, 64);
    return ok();
}

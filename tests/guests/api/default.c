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

int main(void) {
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

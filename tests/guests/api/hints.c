/* Hints for ranges: pages that are touched afterwards lie where the hint says, page by page, as the pagemap shows. */
#include "api.h"

enum { PAGES = 700 };

static void by_address(void) {
    unsigned char *p = map_anon((PAGES + 2) * PAGE);
    unsigned char *range = p + PAGE;
    struct pagelab_hint hint = hint_of(PAGELAB_PAGE_COLORING, 24);
    CHECK_API(pagelab_set_range(range, PAGES * PAGE, &hint), 0);
    CHECK_API(pagelab_strategy_at(range), PAGELAB_PAGE_COLORING);
    CHECK_API(pagelab_strategy_at(range + PAGES * PAGE - 1), PAGELAB_PAGE_COLORING);
    for (size_t i = 0; i < PAGES / 2; i++) range[i * PAGE] = 1;
    for (size_t i = PAGES; i-- > PAGES / 2;) range[i * PAGE] = 1;
    CHECK_COLORED(range, PAGES, 24);
    check_queries(range, PAGES, 24);
    hint = hint_of(PAGELAB_PAGE_COLORING, 0);
    uint64_t masks[] = {0x11, 0x22, 0x44};
    hint.masks = masks;
    hint.mask_count = 3;
    unsigned char *q = map_anon(PAGES * PAGE);
    CHECK_API(pagelab_set_range(q, PAGES * PAGE, &hint), 0);
    for (size_t i = 0; i < PAGES; i++) {
        q[i * PAGE] = 1;
        uint64_t frame = frame_of(q + i * PAGE), color = 0;
        for (int bit = 0; bit < 3; bit++) color |= (uint64_t)__builtin_parityll(frame & masks[bit]) << bit;
        CHECK(color == (vpn_of(q) + i) % 8);
    }
    CHECK_API(pagelab_color_count(q), 8);
}

static void in_order(void) {
    unsigned char *p = map_anon(PAGES * PAGE);
    struct pagelab_hint hint = hint_of(PAGELAB_BIN_HOPPING, 10);
    hint.first = 7;
    CHECK_API(pagelab_set_range(p, PAGES * PAGE, &hint), 0);
    for (size_t i = 0; i < PAGES; i++) {
        unsigned char *page = p + i * 211 % PAGES * PAGE;
        *page = 1;
        CHECK(frame_of(page) % 10 == (7 + i) % 10);
    }
    unsigned char *q = map_anon(PAGES * PAGE);
    CHECK_API(pagelab_set_range(q, PAGES * PAGE, &hint), 0);
    q[5] = 1;
    CHECK(frame_of(q) % 10 == (7 + PAGES) % 10); /* one hint, one order of bins */
}

static void page_by_page(void) {
    unsigned char *p = map_anon(PAGES * PAGE);
    uint64_t colors[] = {9, 9, PAGELAB_ANYWHERE, 0, 13};
    struct pagelab_hint hint = hint_of(PAGELAB_MODULO, 14);
    hint.values = colors;
    hint.value_count = 5;
    CHECK_API(pagelab_set_range(p, PAGES * PAGE, &hint), 0);
    memset(colors, 0, sizeof colors); /* they were copied */
    uint64_t wanted[] = {9, 9, PAGELAB_ANYWHERE, 0, 13};
    for (size_t i = 0; i < PAGES; i++) {
        p[i * PAGE] = 1;
        CHECK(wanted[i % 5] == PAGELAB_ANYWHERE || frame_of(p + i * PAGE) % 14 == wanted[i % 5]);
    }
    hint = hint_of(PAGELAB_RANDOM, 30);
    hint.seed = 99;
    unsigned char *q = map_anon(PAGES * PAGE);
    CHECK_API(pagelab_set_range(q, PAGES * PAGE, &hint), 0);
    policy.colours = 30;
    for (size_t i = 0; i < PAGES; i++) {
        q[i * PAGE] = 1;
        CHECK(frame_of(q + i * PAGE) % 30 == mixed_colour(mixed(99) ^ (vpn_of(q) + i)));
    }
}

static void replaced(void) {
    unsigned char *p = map_anon(90 * PAGE);
    int before = pagelab_strategy_at(p);
    struct pagelab_hint a = hint_of(PAGELAB_PAGE_COLORING, 6), b = hint_of(PAGELAB_BIN_HOPPING, 6);
    struct pagelab_hint kernel = PAGELAB_HINT(PAGELAB_KERNEL);
    CHECK_API(pagelab_set_range(p, 90 * PAGE, &a), 0);
    CHECK_API(pagelab_set_range(p + 30 * PAGE + 5, 30 * PAGE - 10, &b), 0); /* the bytes of 30 pages */
    CHECK_API(pagelab_set_range(p + 70 * PAGE, 10 * PAGE, &kernel), 0);
    for (size_t i = 0; i < 90; i++) {
        int kind = i < 30 ? PAGELAB_PAGE_COLORING : i < 60 ? PAGELAB_BIN_HOPPING : PAGELAB_PAGE_COLORING;
        if (i >= 70 && i < 80) kind = PAGELAB_KERNEL;
        CHECK_API(pagelab_strategy_at(p + i * PAGE), kind);
        p[i * PAGE] = (unsigned char)i;
    }
    CHECK_COLORED(p, 30, 6);
    CHECK_COLORED(p + 60 * PAGE, 10, 6);
    CHECK_API(pagelab_clear_range(p, 90 * PAGE), 0);
    CHECK_API(pagelab_strategy_at(p + 50 * PAGE), before);
    for (size_t i = 0; i < 90; i++) CHECK(p[i * PAGE] == i);
    CHECK(munmap(p, 90 * PAGE) == 0);
}

int main(void) {
    CHECK_API(pagelab_version(), PAGELAB_API_VERSION);
    CHECK_API(pagelab_start(), 0);
    by_address();
    in_order();
    page_by_page();
    replaced();
    struct pagelab_counters counters, more;
    CHECK_API(pagelab_counters(&counters, sizeof counters), 0);
    CHECK(counters.placed >= 5 * PAGES && counters.requests == counters.placed + counters.fallbacks + counters.zero_pages);
    CHECK(counters.fallbacks == 0 && counters.zero_pages == 0 && counters.faults > 0 && counters.runs > 0);
    memset(&more, 0xff, sizeof more);
    CHECK_API(pagelab_counters(&more, 2 * sizeof(uint64_t)), 0);
    CHECK(more.placed == counters.placed && more.fallbacks == UINT64_MAX);
    return ok();
}

/* A program that tunes itself gives many hints, one after the other; few of them at a time are different. */
#include "api.h"

enum { MOST = 200, PAGES = 8 };

int main(void) {
    unsigned char *p = map_anon(MOST * PAGES * PAGE);
    struct pagelab_hint hint = hint_of(PAGELAB_RANDOM, 16);
    for (uint64_t seed = 0; seed < 300; seed++) {
        hint.seed = seed;
        CHECK_API(pagelab_set_range(p, PAGES * PAGE, &hint), 0);
    }
    size_t different = 0;
    int result = 0;
    while (different < MOST && result == 0) {
        hint.seed = 1000 + different;
        result = pagelab_set_range(p + different * PAGES * PAGE, PAGES * PAGE, &hint);
        different += result == 0;
    }
    CHECK(result == -ENOSPC && different >= 16);
    hint.seed = 1000;
    CHECK_API(pagelab_set_range(p + different * PAGES * PAGE, PAGES * PAGE, &hint), 0); /* not a different one */
    hint.seed = 77;
    CHECK_API(pagelab_clear_range(p + 3 * PAGES * PAGE, PAGES * PAGE), 0);
    CHECK_API(pagelab_set_range(p + 3 * PAGES * PAGE, PAGES * PAGE, &hint), 0);
    policy.colours = 16;
    for (size_t i = 0; i < different; i++) {
        unsigned char *page = p + i * PAGES * PAGE;
        uint64_t seed = i == 3 ? 77 : 1000 + i;
        *page = 1;
        CHECK(frame_of(page) % 16 == mixed_colour(mixed(seed) ^ vpn_of(page)));
    }
    return ok();
}

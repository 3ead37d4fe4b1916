/* What makes no sense is refused with the errno that the header names, and changes nothing. */
#include "api.h"

static void bad_hints(unsigned char *p) {
    uint64_t values[] = {3, 16, PAGELAB_ANYWHERE}, masks[] = {3, 5, 6};
    struct pagelab_hint bad[16];
    size_t n = 0;
    bad[n] = hint_of(PAGELAB_PAGE_COLORING, 16), bad[n++].size = 12;
    bad[n++] = hint_of(6, 16);
    bad[n++] = hint_of(1000, 16);
    bad[n++] = hint_of(PAGELAB_RANDOM, 65537);
    bad[n] = hint_of(PAGELAB_PAGE_COLORING, 16), bad[n++].flags = PAGELAB_DRAW_FIRST;
    bad[n] = hint_of(PAGELAB_RANDOM, 16), bad[n++].flags = 0x100;
    bad[n] = hint_of(PAGELAB_BIN_HOPPING, 16), bad[n++].first = 16;
    bad[n] = hint_of(PAGELAB_PAGE_COLORING, 16), bad[n++].first = 1;
    bad[n++] = hint_of(PAGELAB_MODULO, 16); /* no values */
    bad[n] = hint_of(PAGELAB_MODULO, 16), bad[n].values = values, bad[n++].value_count = 3;
    bad[n] = hint_of(PAGELAB_MODULO, 16), bad[n++].value_count = 3;
    bad[n] = hint_of(PAGELAB_RANDOM, 16), bad[n].values = values, bad[n++].value_count = 1;
    bad[n] = hint_of(PAGELAB_PAGE_COLORING, 16), bad[n].masks = masks, bad[n++].mask_count = 2;
    bad[n] = hint_of(PAGELAB_PAGE_COLORING, 0), bad[n].masks = masks, bad[n++].mask_count = 3; /* the third is the sum */
    for (size_t i = 0; i < n; i++) {
        CHECK_API(pagelab_set_range(p, PAGE, &bad[i]), -EINVAL);
        CHECK_API(pagelab_set_default(&bad[i]), -EINVAL);
    }
    CHECK_API(pagelab_set_range(p, PAGE, NULL), -EINVAL);
}

int main(void) {
    unsigned char *p = map_anon(8 * PAGE);
    int before = pagelab_strategy_at(p);
    struct pagelab_hint hint = hint_of(PAGELAB_PAGE_COLORING, 16);
    uint64_t frames[8];
    uint32_t colors[8];
    bad_hints(p);
    CHECK_API(pagelab_set_range(p, 0, &hint), -EINVAL);
    CHECK_API(pagelab_set_range(p, SIZE_MAX, &hint), -EINVAL);
    CHECK_API(pagelab_clear_range(p, 0), -EINVAL);
    CHECK_API(pagelab_remap_range(p, 0, NULL), -EINVAL);
    CHECK_API(pagelab_frames(p, 1, NULL), -EINVAL);
    CHECK_API(pagelab_colors(p, 1, NULL), -EINVAL);
    CHECK_API(pagelab_counters(NULL, 8), -EINVAL);
    CHECK(munmap(p + 4 * PAGE, PAGE) == 0);
    CHECK_API(pagelab_set_range(p, 8 * PAGE, &hint), -EFAULT);
    CHECK_API(pagelab_remap_range(p, 8 * PAGE, NULL), -EFAULT);
    CHECK_API(pagelab_frames(p, 8, frames), -EFAULT);
    CHECK_API(pagelab_colors(p, 8, colors), -EFAULT);
    CHECK_API(pagelab_strategy_at(p), before);
    if (before == PAGELAB_KERNEL) CHECK_API(pagelab_remap_range(p, 4 * PAGE, NULL), -EINVAL);
    CHECK_API(pagelab_set_range(p, 4 * PAGE, &hint), 0);
    CHECK_API(pagelab_remap_range(p, 4 * PAGE, NULL), 0);
    CHECK_API(pagelab_frames(p, 0, frames), 0);
    return ok();
}

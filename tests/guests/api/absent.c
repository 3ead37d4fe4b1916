/* Without the library every call says so, and nothing else happens. */
#include "api.h"

int main(void) {
    unsigned char *p = map_anon(PAGE);
    struct pagelab_hint hint = PAGELAB_HINT(PAGELAB_PAGE_COLORING);
    struct pagelab_moved moved;
    struct pagelab_counters counters;
    uint64_t frame;
    uint32_t color;
    CHECK_API(pagelab_version(), -ENOSYS);
    CHECK_API(pagelab_start(), -ENOSYS);
    CHECK_API(pagelab_set_range(p, PAGE, &hint), -ENOSYS);
    CHECK_API(pagelab_clear_range(p, PAGE), -ENOSYS);
    CHECK_API(pagelab_set_default(&hint), -ENOSYS);
    CHECK_API(pagelab_remap_range(p, PAGE, &moved), -ENOSYS);
    CHECK_API(pagelab_frames(p, 1, &frame), -ENOSYS);
    CHECK_API(pagelab_colors(p, 1, &color), -ENOSYS);
    CHECK_API(pagelab_color_count(p), -ENOSYS);
    CHECK_API(pagelab_strategy_at(p), -ENOSYS);
    CHECK_API(pagelab_counters(&counters, sizeof counters), -ENOSYS);
    CHECK_API(pagelab_begin("window"), -ENOSYS);
    CHECK_API(pagelab_end(), -ENOSYS);
    return ok();
}

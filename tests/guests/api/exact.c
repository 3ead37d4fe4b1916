/* Exact frames by the program's own hint: frames that were free are found and used; what cannot be had is counted, and
 * frames that nobody can have are refused. */
#include "api.h"

enum { PAGES = 64 };
static uint64_t frames[PAGES], after[PAGES];

static void refused(uint64_t frame) {
    unsigned char *p = map_anon(PAGE);
    struct pagelab_hint hint = hint_of(PAGELAB_EXACT, 0);
    hint.values = &frame;
    hint.value_count = 1;
    CHECK_API(pagelab_set_range(p, PAGE, &hint), -EINVAL);
    p[0] = 1; /* as if it had never been asked for */
    CHECK_API(pagelab_frames(p, 1, after), 0);
    CHECK(after[0] != 0 && munmap(p, PAGE) == 0);
}

/* Frames that the kernel has just taken back are mostly free; whoever wants a page may have them meanwhile. */
static size_t found(size_t spread) {
    struct pagelab_hint none = PAGELAB_HINT(PAGELAB_KERNEL), hint = hint_of(PAGELAB_EXACT, 0);
    unsigned char *old = map_anon(PAGES * PAGE), *new = map_anon(PAGES * PAGE);
    CHECK_API(pagelab_set_range(old, PAGES * PAGE, &none), 0);
    write_tags(old, PAGES, 1);
    CHECK_API(pagelab_frames(old, PAGES, frames), 0);
    CHECK(munmap(old, PAGES * PAGE) == 0);
    hint.values = frames;
    hint.value_count = PAGES;
    hint.budget_bytes = 64 * MIB;
    CHECK_API(pagelab_set_range(new, PAGES * PAGE, &hint), 0);
    for (size_t i = 0; i < PAGES; i++) write_tag(new, i * spread % PAGES, 2);
    check_tags(new, PAGES, 2);
    CHECK_API(pagelab_frames(new, PAGES, after), 0);
    size_t same = 0;
    for (size_t i = 0; i < PAGES; i++) {
        CHECK(after[i] != 0 && after[i] == frame_of(new + i * PAGE));
        same += after[i] == frames[i];
    }
    CHECK(munmap(new, PAGES * PAGE) == 0);
    return same;
}

int main(void) {
    CHECK_API(pagelab_start(), 0);
    refused(0);
    refused((uint64_t)1 << 39);
    size_t best = 0;
    for (size_t round = 0; round < 8; round++) {
        size_t same = found(round % 2 ? 1 : 37);
        if (getenv("EXACT_SAY")) printf("%zu of %d\n", same, PAGES);
        best = same > best ? same : best;
    }
    if (best < PAGES / 2) FAIL("at most %zu of %d frames were found again", best, PAGES);
    return ok();
}

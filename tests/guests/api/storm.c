/* Threads that all give hints, move, ask, map and unmap at once: contents stay, and in the end everything is where the
 * last hint says. */
#include "api.h"

enum { THREADS = 4, ROUNDS = 60, PAGES = 40 };

static void *worker(void *argument) {
    uint64_t id = (uint64_t)(uintptr_t)argument, seed = id + 1;
    static __thread uint64_t frames[PAGES];
    static __thread uint32_t colors[PAGES];
    unsigned char *kept = map_anon(PAGES * PAGE);
    write_tags(kept, PAGES, id << 32);
    struct pagelab_hint hint = hint_of(PAGELAB_PAGE_COLORING, 0);
    for (int round = 0; round < ROUNDS; round++) {
        hint.strategy = random_next(&seed) % 2 ? PAGELAB_PAGE_COLORING : PAGELAB_BIN_HOPPING;
        hint.colors = 8 + (uint32_t)(random_next(&seed) % 4);
        unsigned char *short_lived = map_anon(PAGES * PAGE);
        CHECK(pagelab_set_range(short_lived, PAGES * PAGE, &hint) == 0);
        memset(short_lived, (int)id + 1, (1 + random_next(&seed) % PAGES) * PAGE);
        CHECK(pagelab_set_range(kept, PAGES * PAGE, &hint) == 0);
        CHECK(pagelab_remap_range(kept, PAGES * PAGE, NULL) == 0);
        CHECK(pagelab_frames(kept, PAGES, frames) == 0 && pagelab_colors(kept, PAGES, colors) == 0);
        CHECK(pagelab_color_count(kept) == (int)hint.colors);
        for (int i = 0; i < PAGES; i++) CHECK(frames[i] && colors[i] == frames[i] % hint.colors);
        check_tags(kept, PAGES, id << 32);
        CHECK(short_lived[5] == id + 1);
        CHECK(munmap(short_lived, PAGES * PAGE) == 0);
    }
    hint = hint_of(PAGELAB_PAGE_COLORING, 11);
    CHECK(pagelab_set_range(kept, PAGES * PAGE, &hint) == 0);
    CHECK(pagelab_remap_range(kept, PAGES * PAGE, NULL) == 0);
    CHECK_COLORED(kept, PAGES, 11);
    check_tags(kept, PAGES, id << 32);
    return NULL;
}

int main(void) {
    pthread_t threads[THREADS];
    for (uintptr_t i = 0; i < THREADS; i++) CHECK(pthread_create(&threads[i], NULL, worker, (void *)i) == 0);
    for (int i = 0; i < THREADS; i++) CHECK(pthread_join(threads[i], NULL) == 0);
    return ok();
}

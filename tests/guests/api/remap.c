/* Pages that are in memory move to where a hint wants them: with their contents, and while other threads write. */
#include "api.h"
#include <sys/resource.h>

enum { PAGES = 600 };

static struct pagelab_moved remap(unsigned char *p, size_t bytes) {
    struct pagelab_moved moved;
    CHECK_API(pagelab_remap_range(p, bytes, &moved), 0);
    CHECK(moved.pages == moved.absent + moved.in_place + moved.elsewhere);
    return moved;
}

static void whole(void) {
    unsigned char *p = map_anon(PAGES * PAGE);
    write_tags(p, PAGES, 77);
    struct pagelab_hint hint = hint_of(PAGELAB_PAGE_COLORING, 20);
    for (uint32_t colors = 20; colors < 24; colors++) {
        hint.colors = colors;
        CHECK_API(pagelab_set_range(p, PAGES * PAGE, &hint), 0);
        struct pagelab_moved moved = remap(p, PAGES * PAGE);
        CHECK(moved.pages == PAGES && moved.in_place == PAGES);
        CHECK_COLORED(p, PAGES, colors);
        check_tags(p, PAGES, 77);
    }
    CHECK(remap(p, PAGES * PAGE).in_place == PAGES); /* again: nothing to do */
    check_tags(p, PAGES, 77);
    CHECK_API(pagelab_clear_range(p, PAGES * PAGE), 0);
    CHECK(munmap(p, PAGES * PAGE) == 0);
}

static void with_holes(void) {
    unsigned char *p = map_anon(PAGES * PAGE);
    for (size_t i = 0; i < PAGES; i += 3) p[i * PAGE] = (unsigned char)(i % 251 + 1);
    struct pagelab_hint hint = hint_of(PAGELAB_BIN_HOPPING, 16);
    size_t before = resident_pages(p, PAGES);
    CHECK_API(pagelab_set_range(p, PAGES * PAGE, &hint), 0);
    struct pagelab_moved moved = remap(p, PAGES * PAGE);
    CHECK(moved.in_place == before && moved.absent == PAGES - before);
    uint64_t last = UINT64_MAX;
    for (size_t i = 0; i < PAGES; i++) {
        uint64_t frame = frame_of(p + i * PAGE);
        if (frame == 0) continue;
        CHECK(last == UINT64_MAX || frame % 16 == (last + 1) % 16);
        last = frame % 16;
    }
    for (size_t i = 0; i < PAGES; i++) CHECK(p[i * PAGE] == (i % 3 ? 0 : (unsigned char)(i % 251 + 1)));
}

/* malloc'd memory is not aligned, and has neighbours. */
static void from_malloc(void) {
    size_t bytes = 300 * PAGE + 100;
    unsigned char *block = malloc(bytes), *neighbour = malloc(bytes);
    CHECK(block && neighbour);
    for (size_t i = 0; i < bytes; i++) block[i] = (unsigned char)(i * 7), neighbour[i] = (unsigned char)(i * 5);
    struct pagelab_hint hint = hint_of(PAGELAB_PAGE_COLORING, 32);
    CHECK_API(pagelab_set_range(block, bytes, &hint), 0);
    struct pagelab_moved moved = remap(block, bytes);
    CHECK(moved.elsewhere == 0 && moved.absent == 0);
    unsigned char *first = (unsigned char *)((uintptr_t)block & ~(PAGE - 1));
    CHECK_COLORED(first, moved.pages, 32);
    for (size_t i = 0; i < bytes; i++) CHECK(block[i] == (unsigned char)(i * 7) && neighbour[i] == (unsigned char)(i * 5));
    free(block);
    free(neighbour);
}

/* A page of 2 MiB has to be taken apart. */
static void from_a_huge_page(void) {
    unsigned char *p = map_anon(4 * MIB);
    unsigned char *tile = (unsigned char *)(((uintptr_t)p + 2 * MIB - 1) & ~(2 * MIB - 1));
    (void)madvise(tile, 2 * MIB, MADV_HUGEPAGE);
    write_tags(tile, 512, 5);
    struct pagelab_hint hint = hint_of(PAGELAB_PAGE_COLORING, 48);
    CHECK_API(pagelab_set_range(tile, 2 * MIB, &hint), 0);
    CHECK(remap(tile, 2 * MIB).in_place == 512);
    CHECK_COLORED(tile, 512, 48);
    check_tags(tile, 512, 5);
}

static volatile int done;
static uint64_t *counters_at(unsigned char *p, size_t page) { return (uint64_t *)(p + page * PAGE); }
enum { SHARED = 64, ROUNDS = 30 };

struct work {
    unsigned char *p;
    size_t slot;
    volatile uint64_t rounds;
};

static void *count_up(void *argument) {
    struct work *work = argument;
    while (!done) {
        for (size_t page = 0; page < SHARED; page++) {
            uint64_t *word = counters_at(work->p, page) + work->slot;
            *(volatile uint64_t *)word = *(volatile uint64_t *)word + 1;
        }
        work->rounds++;
    }
    return NULL;
}

static void while_others_write(void) {
    unsigned char *p = map_anon(SHARED * PAGE);
    memset(p, 0, SHARED * PAGE);
    struct work work[3];
    pthread_t threads[3];
    for (size_t i = 0; i < 3; i++) {
        work[i] = (struct work){p, i * 100, 0};
        CHECK(pthread_create(&threads[i], NULL, count_up, &work[i]) == 0);
    }
    /* On a busy machine all rounds below may be over before a thread has run at all. */
    for (size_t i = 0; i < 3; i++)
        while (work[i].rounds == 0) usleep(100);
    struct pagelab_hint hint = hint_of(PAGELAB_PAGE_COLORING, 0);
    for (uint32_t round = 0; round < ROUNDS; round++) {
        hint.colors = 17 + round % 5;
        CHECK_API(pagelab_set_range(p, SHARED * PAGE, &hint), 0);
        CHECK(remap(p, SHARED * PAGE).in_place == SHARED);
    }
    done = 1;
    for (size_t i = 0; i < 3; i++) CHECK(pthread_join(threads[i], NULL) == 0);
    for (size_t i = 0; i < 3; i++) {
        for (size_t page = 0; page < SHARED; page++) CHECK(counters_at(p, page)[work[i].slot] == work[i].rounds);
    }
    CHECK_COLORED(p, SHARED, hint.colors);
}

/* Frames named one by one: pages that lie on them stay. */
static void on_exact_frames(void) {
    unsigned char *p = map_anon(PAGES * PAGE);
    static uint64_t frames[PAGES], after[PAGES];
    struct pagelab_hint hint = hint_of(PAGELAB_EXACT, 0);
    CHECK_API(pagelab_set_range(p, PAGES * PAGE, &(struct pagelab_hint)PAGELAB_HINT(PAGELAB_KERNEL)), 0);
    write_tags(p, PAGES, 9);
    CHECK_API(pagelab_frames(p, PAGES, frames), 0);
    hint.values = frames;
    hint.value_count = PAGES - 10; /* the last ten: any */
    CHECK_API(pagelab_set_range(p, PAGES * PAGE, &hint), 0);
    struct pagelab_moved moved = remap(p, PAGES * PAGE);
    CHECK_API(pagelab_frames(p, PAGES, after), 0);
    CHECK(memcmp(frames, after, sizeof frames) == 0 && moved.in_place == PAGES);
    check_tags(p, PAGES, 9);
}

/* A hint that pins is bound by the limit on locked memory: the engine's threads have none of the program's capabilities. */
static int may_pin(void) {
    struct rlimit limit;
    CHECK(getrlimit(RLIMIT_MEMLOCK, &limit) == 0);
    return limit.rlim_cur >= 64 * MIB;
}

/* Pinned memory is locked; a later hint that does not pin unlocks it. */
static void pinned(void) {
    unsigned char *p = map_anon(PAGES * PAGE);
    write_tags(p, PAGES, 3);
    struct pagelab_hint hint = hint_of(PAGELAB_PAGE_COLORING, 20);
    for (int round = 0; round < 4; round++) {
        hint.flags = round % 2 ? 0 : PAGELAB_PIN;
        hint.colors = 20 + (uint32_t)round / 2;
        CHECK_API(pagelab_set_range(p, PAGES * PAGE, &hint), 0);
        struct pagelab_moved moved = remap(p, PAGES * PAGE);
        if (hint.flags == 0 || may_pin()) {
            CHECK(moved.in_place == PAGES);
            CHECK_COLORED(p, PAGES, hint.colors);
        }
        check_tags(p, PAGES, 3);
    }
    CHECK(munmap(p, PAGES * PAGE) == 0);
}

int main(void) {
    CHECK_API(pagelab_start(), 0);
    pinned();
    on_exact_frames();
    whole();
    with_holes();
    from_malloc();
    from_a_huge_page();
    while_others_write();
    return ok();
}

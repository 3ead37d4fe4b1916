/* mremap: contents move along; where the C library leaves the place open, a moved page still has the colour promised for
 * its new address; pages that are new are placed. */
#include "frames.h"

static void grow_with_a_move(size_t from, size_t to) {
    unsigned char *p = map_anon(from * PAGE), *wall;
    write_tags(p, from, 1);
    wall = mmap(p + from * PAGE, PAGE, PROT_NONE, ANON | MAP_FIXED_NOREPLACE, -1, 0); /* may be taken: then it is a wall */
    unsigned char *q = mremap(p, from * PAGE, to * PAGE, MREMAP_MAYMOVE);
    CHECK(q != MAP_FAILED);
    check_tags(q, from, 1);
    CHECK(all_zero(q + from * PAGE, (to - from) * PAGE));
    CHECK_MOVED(q, to);
    CHECK(munmap(q, to * PAGE) == 0);
    if (wall != MAP_FAILED) CHECK(munmap(wall, PAGE) == 0);
}

static void grow_step_by_step(void) {
    size_t pages = 3;
    unsigned char *p = map_anon(pages * PAGE);
    write_tags(p, pages, 8);
    while (pages < 3000) {
        size_t more = pages + pages / 2 + 1;
        p = mremap(p, pages * PAGE, more * PAGE, MREMAP_MAYMOVE);
        CHECK(p != MAP_FAILED);
        check_tags(p, pages, 8);
        write_tags(p, more, 8);
        CHECK_MOVED(p, more);
        pages = more;
    }
    p = mremap(p, pages * PAGE, 100 * PAGE, 0);
    CHECK(p != MAP_FAILED);
    check_tags(p, 100, 8);
    p = mremap(p, 100 * PAGE, 400 * PAGE, MREMAP_MAYMOVE);
    CHECK(p != MAP_FAILED);
    check_tags(p, 100, 8);
    CHECK(all_zero(p + 100 * PAGE, 300 * PAGE));
    CHECK_MOVED(p, 400);
    CHECK(munmap(p, 400 * PAGE) == 0);
}

/* The program names the place. Moved pages keep their frames, so their colours may be wrong now; what is touched for the
 * first time after the move is as promised. FRAMES_AROUND: how many pages come with each fault, if the policy says so. */
static void to_a_place_of_its_own(size_t shift) {
    const char *around = getenv("FRAMES_AROUND");
    size_t moved = 31 + (around ? strtoull(around, NULL, 10) : 1);
    unsigned char *p = map_anon(64 * PAGE), *place = map_anon(256 * PAGE);
    for (size_t i = 32; i-- > 0;) write_tag(p, i, 4); /* backwards: no window widens */
    unsigned char *q = mremap(p, 64 * PAGE, 64 * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, place + shift * PAGE);
    CHECK(q == place + shift * PAGE);
    check_tags(q, 32, 4);
    write_tags(q, 64, 4);
    check_tags(q, 64, 4);
    if (moved < 64) CHECK_PLACED(q + moved * PAGE, 64 - moved);
    CHECK_ERRNO(mincore(p, PAGE, (unsigned char[1]){0}), -1, ENOMEM);
    CHECK(munmap(place, 256 * PAGE) == 0);
}

static void leaving_the_old_one(void) {
    unsigned char *p = map_anon(32 * PAGE);
    write_tags(p, 32, 6);
    unsigned char *q = mremap(p, 32 * PAGE, 32 * PAGE, MREMAP_MAYMOVE | MREMAP_DONTUNMAP, NULL);
    CHECK(q != MAP_FAILED && q != p);
    check_tags(q, 32, 6);
    CHECK(all_zero(p, 32 * PAGE));
    CHECK_PLACED(p, 32);
    CHECK(munmap(p, 32 * PAGE) == 0 && munmap(q, 32 * PAGE) == 0);
}

static void realloc_of_large_blocks(void) {
    size_t bytes = 200 * KIB;
    unsigned char *p = malloc(bytes);
    CHECK(p);
    fill(p, bytes, 3);
    for (int i = 0; i < 12; i++) {
        size_t more = bytes + bytes / 3;
        p = realloc(p, more);
        CHECK(p && holds(p, bytes, 3));
        fill(p, more, 3);
        unsigned char *first = (unsigned char *)(((uintptr_t)p + PAGE - 1) & ~(PAGE - 1));
        CHECK_MOVED(first, (p + more - first) / PAGE);
        bytes = more;
    }
    free(p);
}

int main(void) {
    grow_with_a_move(1, 2);
    grow_with_a_move(7, 300);
    grow_with_a_move(700, 701);
    grow_step_by_step();
    to_a_place_of_its_own(0);
    to_a_place_of_its_own(5);
    leaving_the_old_one();
    realloc_of_large_blocks();
    return ok();
}

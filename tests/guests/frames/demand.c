/* First touches of every kind: by writing, by reading, forwards, backwards, in strides, at random. */
#include "frames.h"

static void forwards(size_t pages) {
    unsigned char *p = map_anon(pages * PAGE);
    write_tags(p, pages, 1);
    check_tags(p, pages, 1);
    CHECK_PLACED(p, pages);
    CHECK(munmap(p, pages * PAGE) == 0);
}

static void backwards(size_t pages) {
    unsigned char *p = map_anon(pages * PAGE);
    for (size_t i = pages; i-- > 0;) p[i * PAGE + 5] = 7;
    CHECK_PLACED(p, pages);
    CHECK(munmap(p, pages * PAGE) == 0);
}

/* Read first: zero; written later, the page stays where it is. */
static void by_reading(size_t pages) {
    unsigned char *p = map_anon(pages * PAGE);
    CHECK(all_zero(p, pages * PAGE));
    uint64_t before = frame_of(p), words[2];
    write_tags(p, pages, 2);
    check_tags(p, pages, 2);
    if (policy.known) {
        CHECK_PLACED(p, pages);
        CHECK(frame_of(p) == before && before != 0);
        read_pagemap(p, 2, words);
        CHECK(frame_in(words[0]) != frame_in(words[1])); /* no shared zero page */
    }
    CHECK(munmap(p, pages * PAGE) == 0);
}

static void in_strides(size_t pages, size_t stride) {
    unsigned char *p = map_anon(pages * PAGE);
    for (size_t first = 0; first < stride; first++)
        for (size_t i = first; i < pages; i += stride) {
            CHECK(p[i * PAGE + 9] == 0);
            p[i * PAGE + 9] = (unsigned char)(i + 1);
        }
    for (size_t i = 0; i < pages; i++) CHECK(p[i * PAGE + 9] == (unsigned char)(i + 1));
    CHECK_PLACED(p, pages);
    CHECK(munmap(p, pages * PAGE) == 0);
}

static void at_random(size_t pages, uint64_t seed) {
    unsigned char *p = map_anon(pages * PAGE);
    for (size_t n = 0; n < 4 * pages; n++) p[random_next(&seed) % pages * PAGE + n % PAGE] |= 1;
    for (size_t i = 0; i < pages; i++) (void)*(volatile unsigned char *)(p + i * PAGE); /* the rest */
    CHECK_PLACED(p, pages);
    CHECK(munmap(p, pages * PAGE) == 0);
}

/* Pages that nobody touched are not made resident without end: one touch in 64 pages. FRAMES_AROUND: how many come with
 * each, if the policy says so. */
static void sparsely(size_t pages) {
    const char *around = getenv("FRAMES_AROUND");
    size_t allowed = pages / 64 * (around ? strtoull(around, NULL, 10) : 2);
    unsigned char *p = map_anon(pages * PAGE);
    for (size_t i = 0; i < pages; i += 64) p[i * PAGE] = 1;
    size_t resident = resident_pages(p, pages);
    if (policy.known && resident > allowed) FAIL("%zu pages resident for %zu touches", resident, pages / 64);
    CHECK(munmap(p, pages * PAGE) == 0);
}

int main(void) {
    static const size_t sizes[] = {1, 2, 3, 17, 64, 511, 512, 513, 3000};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        forwards(sizes[i]);
        backwards(sizes[i]);
        by_reading(sizes[i]);
        at_random(sizes[i], i + 1);
    }
    in_strides(2048, 32);
    in_strides(2047, 7);
    sparsely(8192);
    return ok();
}

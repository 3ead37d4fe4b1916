/* What is given back (MADV_DONTNEED, MADV_FREE, munmap) is zero when it comes again, and placed again. */
#include "frames.h"

static void discard(size_t pages, size_t from, size_t count) {
    unsigned char *p = map_anon(pages * PAGE);
    for (int round = 0; round < 4; round++) {
        memset(p + from * PAGE, 0xAB, count * PAGE);
        CHECK(madvise(p + from * PAGE, count * PAGE, MADV_DONTNEED) == 0);
        if (policy.known && resident_pages(p + from * PAGE, count) != 0) FAIL("resident after MADV_DONTNEED");
        CHECK(all_zero(p + from * PAGE, count * PAGE));
        CHECK_PLACED(p + from * PAGE, count);
    }
    CHECK(munmap(p, pages * PAGE) == 0);
}

static void free_lazily(void) {
    unsigned char *p = map_anon(256 * PAGE);
    write_tags(p, 256, 9);
    CHECK(madvise(p, 256 * PAGE, MADV_FREE) == 0);
    for (size_t i = 0; i < 256; i++) { /* old or zero, nothing else */
        uint64_t word;
        memcpy(&word, p + i * PAGE + i % 500 * 8, 8);
        CHECK(word == 0 || word == 9 + i);
    }
    memset(p, 0, 256 * PAGE);
    write_tags(p, 256, 11);
    check_tags(p, 256, 11);
    CHECK_PLACED(p, 256);
    CHECK(munmap(p, 256 * PAGE) == 0);
}

/* Dirty memory goes and comes many times, in many sizes: what comes is zero and placed, whoever had it before. */
static void reuse(int rounds) {
    uint64_t seed = 5;
    unsigned char *held[16] = {0};
    size_t pages[16] = {0};
    for (int round = 0; round < rounds; round++) {
        unsigned slot = random_next(&seed) % 16;
        if (held[slot]) {
            CHECK(holds(held[slot], 64, slot));
            CHECK(munmap(held[slot], pages[slot] * PAGE) == 0);
        }
        pages[slot] = 1 + random_next(&seed) % (round % 8 ? 40 : 700);
        held[slot] = map_anon(pages[slot] * PAGE);
        CHECK(all_zero(held[slot], pages[slot] * PAGE));
        CHECK_PLACED(held[slot], pages[slot]);
        memset(held[slot], 0xEE, pages[slot] * PAGE);
        fill(held[slot], 64, slot);
    }
    for (int i = 0; i < 16; i++)
        if (held[i]) CHECK(munmap(held[i], pages[i] * PAGE) == 0);
}

/* A hole in the middle goes and is filled again at the same place. */
static void partly(void) {
    unsigned char *p = map_anon(600 * PAGE);
    write_tags(p, 600, 1);
    CHECK(munmap(p + 100 * PAGE, 57 * PAGE) == 0);
    void *again = mmap(p + 100 * PAGE, 57 * PAGE, RW, ANON | MAP_FIXED_NOREPLACE, -1, 0);
    CHECK(again == p + 100 * PAGE && all_zero(again, 57 * PAGE));
    again = mmap(p + 300 * PAGE, 64 * PAGE, RW, ANON | MAP_FIXED, -1, 0);
    CHECK(again == p + 300 * PAGE && all_zero(again, 64 * PAGE));
    check_tags(p, 100, 1);
    check_tags_from(p + 157 * PAGE, 143, 1, 157);
    check_tags_from(p + 364 * PAGE, 236, 1, 364);
    CHECK_PLACED(p, 600);
    CHECK(munmap(p, 600 * PAGE) == 0);
}

static void heap_goes_and_comes(void) {
    for (int round = 0; round < 5; round++) {
        unsigned char *p = sbrk(300 * PAGE);
        CHECK(p != (void *)-1);
        unsigned char *first = (unsigned char *)(((uintptr_t)p + PAGE - 1) & ~(PAGE - 1));
        CHECK(all_zero(p, 300 * PAGE));
        CHECK_PLACED(first, 299);
        memset(p, 0xCC, 300 * PAGE);
        CHECK(sbrk(-(300 * (long)PAGE)) != (void *)-1);
    }
}

int main(void) {
    discard(1, 0, 1);
    discard(700, 0, 700);
    discard(700, 13, 500);
    discard(2000, 1999, 1);
    free_lazily();
    reuse(400);
    partly();
    heap_goes_and_comes();
    return ok();
}

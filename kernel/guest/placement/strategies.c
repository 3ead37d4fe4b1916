/* Strategies: the colors that pages have are those of crates/frames, and exact frames. */
#include "tests.h"

#include <linux/mempolicy.h>

#include "../vectors.h"

void test_colors(void)
{
    const struct vector *masked = &vectors[3];
    CHECK(masked->mask_count == 4);
    for (int at = 0; at < 64; at++) {
        CHECK(color_of(frames[at], 16, NULL, 0) == colors_16[at]);
        CHECK(color_of(frames[at], 12, NULL, 0) == colors_12[at]);
        CHECK(color_of(frames[at], 0, masked->masks, masked->mask_count) == colors_masked[at]);
    }
}

static void check_vector(const struct vector *v)
{
    struct page_hint asked = hint(v->strategy, v->colors);
    struct page_hint_counters before = counters(), after;
    volatile char *memory = mmap((void *)(FIRST_PAGE * PAGE), PAGES * PAGE, PROT_READ | PROT_WRITE,
                                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    int asked_pages = 0;
    if (v->first >= 0) {
        asked.flags |= PAGE_HINT_FIRST;
        asked.first = (unsigned)v->first;
    }
    asked.seed = v->seed;
    asked.masks = (uintptr_t)v->masks;
    asked.mask_count = v->mask_count;
    asked.values = (uintptr_t)v->values;
    asked.value_count = v->value_count;
    set(PAGE_HINTS_SET_RANGE, ranged(asked, memory, PAGES));
    touch(memory, PAGES);
    for (int at = 0; at < PAGES; at++) {
        uint64_t frame = frame_of(memory + at * PAGE);
        int color = color_of(frame, v->colors, v->masks, v->mask_count);
        asked_pages += v->want[at] >= 0;
        CHECK(v->want[at] < 0 || color == v->want[at], "%s of %u colors, page %d: color %d instead of %d", v->strategy,
              v->colors, at, color, v->want[at]);
        CHECK(memory[at * PAGE] == (char)(at + 1));
    }
    after = counters();
    CHECK(after.placed - before.placed == (unsigned)asked_pages);
    CHECK(after.unasked - before.unasked == (unsigned)(PAGES - asked_pages));
    CHECK(fallen(after) == fallen(before));
}

void test_vectors(void)
{
    for (size_t at = 0; at < sizeof vectors / sizeof *vectors; at++) check_vector(&vectors[at]);
}

void test_vectors_fragmented(void)
{
    char *held = fragment((size_t)free_pages() / 2);
    test_vectors();
    CHECK(statistic("page-coloring", "placed") > 0);
    munmap(held, PAGE);
}

void test_hash(void)
{
    for (int round = 0; round < 8; round++)
        CHILD({
            struct page_hint asked = hint("page-coloring", 16);
            volatile char *memory = mmap((void *)(FIRST_PAGE * PAGE), PAGE, PROT_READ | PROT_WRITE,
                                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
            CHECK(getpid() < PIDS);
            asked.flags = PAGE_HINT_HASH_PID;
            set(PAGE_HINTS_SET_DEFAULT, asked);
            touch(memory, 1);
            CHECK((int)(frame_of(memory) % 16) == turned[getpid()], "process %d", getpid());
        });
}

void test_exact(void)
{
    enum { COUNT = 64 };
    volatile char *memory = map(COUNT);
    uint64_t frames_then[COUNT];
    unsigned same = 0;
    struct page_hint asked = hint("exact", 0);
    struct page_hint_counters counted;
    touch(memory, COUNT);
    for (int at = 0; at < COUNT; at++) frames_then[at] = frame_of(memory + at * PAGE);
    /* Backwards, and one page of each four anywhere. */
    uint64_t wanted[COUNT];
    for (int at = 0; at < COUNT; at++) wanted[at] = at % 4 == 3 ? ANYWHERE : frames_then[COUNT - 1 - at];
    CHECK(madvise((void *)memory, COUNT * PAGE, MADV_DONTNEED) == 0);
    asked.values = (uintptr_t)wanted;
    asked.value_count = COUNT;
    set(PAGE_HINTS_SET_RANGE, ranged(asked, memory, COUNT));
    /* They lie on the lists of a processor, which are drained ten times a second. */
    usleep(200000);
    /* First those that are asked for: a page that may lie anywhere fills the list of its processor with free frames again. */
    for (int any = 0; any < 2; any++)
        for (int at = 0; at < COUNT; at++)
            if ((wanted[at] == ANYWHERE) == any) memory[at * PAGE] = 1;
    for (int at = 0; at < COUNT; at++) same += frame_of(memory + at * PAGE) == wanted[at];
    counted = counters();
    CHECK(counted.unasked == COUNT / 4);
    /* One that fell back may get its frame all the same: freed last, it is first in its processor's list. */
    CHECK(counted.placed <= same && same - counted.placed <= counted.absent, "%u are there, %llu counted", same,
          counted.placed);
    CHECK(counted.placed + fallen(counted) == COUNT * 3 / 4);
    /* Somebody else may have been given one or another meanwhile. */
    CHECK(same >= COUNT * 3 / 4 - 8, "only %u", same);
    /* Frames of the other node, as well. */
    unsigned long node = 1UL << (1 - node_of(memory));
    volatile char *far = map(COUNT);
    CHECK(syscall(SYS_mbind, far, COUNT * PAGE, MPOL_BIND, &node, 64, 0) == 0);
    touch(far, COUNT);
    for (int at = 0; at < COUNT; at++) wanted[at] = frame_of(far + at * PAGE);
    munmap((void *)far, COUNT * PAGE);
    usleep(200000);
    far = map(COUNT);
    set(PAGE_HINTS_SET_RANGE, ranged(asked, far, COUNT));
    touch(far, COUNT);
    same = 0;
    for (int at = 0; at < COUNT; at++) same += frame_of(far + at * PAGE) == wanted[at];
    CHECK(same >= COUNT - 8 && node_of(far) != node_of(memory), "only %u", same);
    counted = counters();
    /* Frames that are in use, or are none, are not given. */
    uint64_t taken[] = {frame_of(memory), 0, 1UL << 40, (1UL << 63) - 2};
    volatile char *other = map(4);
    asked.values = (uintptr_t)taken;
    asked.value_count = 4;
    set(PAGE_HINTS_SET_RANGE, ranged(asked, other, 4));
    touch(other, 4);
    CHECK(frame_of(other) != taken[0]);
    CHECK(counters().absent - counted.absent >= 4);
}

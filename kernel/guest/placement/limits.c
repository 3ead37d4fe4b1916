/* Limits: colors and memory that are used up, limits of a group, nodes of a policy. */
#include "tests.h"

#include <linux/mempolicy.h>
#include <sys/stat.h>

/* What is free on a node: all of it, and in its CMA area. */
static void free_of_node(int node, long *all, long *cma)
{
    char line[256];
    long value;
    int at = 0;
    FILE *file;
    *all = *cma = 0;
    write_file("/proc/sys/vm/stat_refresh", "1");
    file = fopen("/proc/zoneinfo", "re");
    while (fgets(line, sizeof line, file)) {
        sscanf(line, "Node %d, zone", &at);
        if (at != node) continue;
        if (sscanf(line, " nr_free_pages %ld", &value) == 1) *all += value;
        if (sscanf(line, " nr_free_cma %ld", &value) == 1) *cma += value;
    }
    fclose(file);
}

/* All pages of one color of 64: beyond them others are given, and counted. */
void test_exhaustion(void)
{
    long before = free_pages_everywhere();
    CHILD({
        size_t pages = (size_t)before / 16;
        volatile char *memory = map(pages);
        unsigned long color = 3;
        long near, area;
        stay_on_first_node();
        free_of_node(0, &near, &area);
        size_t right = 0;
        long migrated = vmstat("pgmigrate_success");
        struct page_hint asked = hint("modulo", 64);
        struct page_hint_counters counted;
        asked.values = (uintptr_t)&color;
        asked.value_count = 1;
        set(PAGE_HINTS_SET_RANGE, ranged(asked, memory, pages));
        touch(memory, pages);
        for (size_t at = 0; at < pages; at++) right += frame_of(memory + at * PAGE) % 64 == 3;
        counted = counters();
        printf("of %zu pages %llu placed, %llu absent, %llu bound, %llu watermark; %zu have the color; %ld were migrated\n",
               pages, counted.placed, counted.absent, counted.bound, counted.watermark, right,
               vmstat("pgmigrate_success") - migrated);
        CHECK(counted.placed + fallen(counted) == pages);
        /* What was placed has the color, but for what the kernel has moved since. */
        CHECK(fallen(counted) > 0 && counted.placed <= right + (size_t)(vmstat("pgmigrate_success") - migrated));
        /* Nearly all that the nearer node had: 1 page of 64. */
        CHECK(counted.placed > (unsigned long)near / 64 * 8 / 10, "of %ld", near / 64);
    });
    usleep(200000);
    check_free_again(before);
}

void test_memory_short(void)
{
    /* More than there is: the usual path reclaims and swaps, and placement stands aside. */
    CHILD({
        size_t pages = (size_t)free_pages() + 4096;
        volatile char *memory = map(pages);
        struct page_hint_counters counted;
        set(PAGE_HINTS_SET_RANGE, ranged(hint("page-coloring", 16), memory, pages));
        touch(memory, pages);
        counted = counters();
        printf("of %zu pages %llu placed, %llu absent, %llu bound, %llu watermark\n", pages, counted.placed, counted.absent,
               counted.bound, counted.watermark);
        CHECK(counted.placed + fallen(counted) >= pages && counted.watermark > 0);
        for (size_t at = 0; at < pages; at++) CHECK(memory[at * PAGE] == (char)(at + 1));
    });
}

static long cgroup_value(const char *name)
{
    char path[128], text[64] = "";
    int file;
    snprintf(path, sizeof path, "/sys/fs/cgroup/test/%s", name);
    file = open(path, O_RDONLY | O_CLOEXEC);
    CHECK(read(file, text, sizeof text - 1) > 0, "%s", path);
    close(file);
    return atol(text);
}

void test_memcg(void)
{
    mkdir("/sys/fs/cgroup/test", 0755);
    write_file("/sys/fs/cgroup/test/memory.max", "33554432");
    CHILD({
        size_t pages = 4096;
        volatile char *memory = map(4 * pages);
        char text[16];
        snprintf(text, sizeof text, "%d", getpid());
        write_file("/sys/fs/cgroup/test/cgroup.procs", text);
        set(PAGE_HINTS_SET_RANGE, ranged(hint("page-coloring", 16), memory, 4 * pages));
        touch(memory, pages);
        CHECK(cgroup_value("memory.current") >= (long)(pages * PAGE));
        /* Twice the limit: the rest has to be swapped out. */
        touch(memory, 4 * pages);
        CHECK(cgroup_value("memory.current") <= 33554432);
        check_colors(memory + 4 * pages * PAGE - 16 * PAGE, 16, 16);
        CHECK(counters().placed >= 4 * pages);
    });
    usleep(100000);
    CHECK(rmdir("/sys/fs/cgroup/test") == 0);
}

/* Booted with cma=: where most of what is free is CMA's, pages that can move come from there, hinted or not. */
void test_cma_balance(void)
{
    const char *names[] = {"usual", "bin-hopping"};
    for (int at = 0; at < 2; at++)
        CHILD({
            long all, cma, all_then, cma_then;
            int node = 0;
            free_of_node(node, &all, &cma);
            if (!cma) free_of_node(++node, &all, &cma);
            unsigned long mask = 1UL << node;
            /* They fit beside the area, and leave half of its size there. */
            size_t pages = (size_t)(all - cma - cma / 2);
            volatile char *memory = map(pages);
            CHECK(cma > 4096 && all > 2 * cma, "%ld free, %ld of them in the area", all, cma);
            CHECK(syscall(SYS_mbind, memory, pages * PAGE, MPOL_BIND, &mask, 64, 0) == 0);
            madvise((void *)memory, pages * PAGE, MADV_NOHUGEPAGE);
            set(PAGE_HINTS_SET_RANGE, ranged(hint(names[at], at ? 16 : 0), memory, pages));
            touch(memory, pages);
            free_of_node(node, &all_then, &cma_then);
            printf("%s: %ld free, %ld of them in the area; %zu pages later %ld and %ld\n", names[at], all, cma, pages,
                   all_then, cma_then);
            CHECK(cma_then <= all_then / 2 + 1024);
            CHECK(!at || counters().placed >= pages * 9 / 10);
        });
}

void test_memory_policy(void)
{
    for (int node = 0; node < 2; node++)
        CHILD({
            volatile char *memory = map(512);
            unsigned long mask = 1UL << node;
            CHECK(syscall(SYS_mbind, memory, 512 * PAGE, MPOL_BIND, &mask, 64, 0) == 0);
            set(PAGE_HINTS_SET_RANGE, ranged(hint("page-coloring", 64), memory, 512));
            touch(memory, 512);
            check_colors(memory, 512, 64);
            for (int at = 0; at < 512; at++) CHECK(node_of(memory + at * PAGE) == node);
            CHECK(counters().placed == 512);
        });
}

/* With vm.zone_reclaim_mode the near node's clean cache goes before pages go to the other node, hinted or not. */
void test_node_reclaim(void)
{
    enum { CACHED = 3072, STEP = 64, COUNT = 512 };
    /* Else the processor's list takes as many reclaimed pages as the low watermark has before one counts as free, and
     * kswapd takes a part of the cache: both more on larger machines. */
    write_file("/proc/sys/vm/percpu_pagelist_high_fraction", "10000");
    write_file("/proc/sys/vm/watermark_boost_factor", "0");
    for (int is_hinted = 0; is_hinted < 2; is_hinted++)
        CHILD({
            static char page[PAGE];
            int file = open("/mnt/cached", O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
            size_t most = (size_t)free_pages();
            size_t filled = 0;
            size_t near = 0;
            volatile char *filling = map(most);
            volatile char *memory = map(COUNT);
            madvise((void *)filling, most * PAGE, MADV_NOHUGEPAGE);
            stay_on_first_node();
            for (int at = 0; at < CACHED; at++) {
                CHECK(write(file, page, PAGE) == (ssize_t)PAGE);
                if (at % 256 == 255) fsync(file);
            }
            do {
                CHECK(filled + STEP <= most, "the node is never full");
                touch(filling + filled * PAGE, STEP);
                filled += STEP;
            } while (node_of(filling + (filled - 1) * PAGE) == 0);
            write_file("/proc/sys/vm/zone_reclaim_mode", "1");
            if (is_hinted) set(PAGE_HINTS_SET_RANGE, ranged(hint("page-coloring", 16), memory, COUNT));
            touch(memory, COUNT);
            write_file("/proc/sys/vm/zone_reclaim_mode", "0");
            for (int at = 0; at < COUNT; at++) near += node_of(memory + at * PAGE) == 0;
            printf("%s hint: %zu of %d pages on the near node\n", is_hinted ? "with a" : "without", near, COUNT);
            CHECK(near > COUNT / 2);
        });
    unlink("/mnt/cached");
    write_file("/proc/sys/vm/percpu_pagelist_high_fraction", "0");
    write_file("/proc/sys/vm/watermark_boost_factor", "15000");
}

/* Pages that are placed count as hits of an interleaving policy, when they are touched first and when they move. */
void test_interleave_hits(void)
{
    CHILD({
        unsigned long both = 3;
        unsigned long first = 1;
        unsigned long second = 2;
        volatile char *memory = map(512);
        long before;
        set(PAGE_HINTS_SET_RANGE, ranged(hint("page-coloring", 64), memory, 512));
        CHECK(syscall(SYS_mbind, memory, 256 * PAGE, MPOL_BIND, &first, 64, 0) == 0);
        CHECK(syscall(SYS_mbind, memory + 256 * PAGE, 256 * PAGE, MPOL_INTERLEAVE, &both, 64, 0) == 0);
        touch(memory, 256);
        before = vmstat("numa_interleave");
        touch(memory + 256 * PAGE, 256);
        printf("%ld hits of 256 pages touched, ", vmstat("numa_interleave") - before);
        CHECK(vmstat("numa_interleave") - before >= 256);
        before = vmstat("numa_interleave");
        CHECK(syscall(SYS_mbind, memory, 256 * PAGE, MPOL_INTERLEAVE, &second, 64, MPOL_MF_MOVE) == 0);
        printf("%ld of pages that moved\n", vmstat("numa_interleave") - before);
        CHECK(vmstat("numa_interleave") - before >= 256);
        check_colors(memory, 512, 64);
        CHECK(counters().placed == 512);
    });
}

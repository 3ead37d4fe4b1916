/* Files: demand fetch, and the page cache. */
#include "tests.h"

#include <linux/mempolicy.h>
#include <sys/mount.h>
#include <sys/stat.h>

/* A page of a file on a disk, touched alone: how many are resident, and how many mapped, after it. */
static void resident_after_touch_as(int advice, int *resident, int *mapped)
{
    unsigned char pages[256];
    uint64_t entries[256];
    int file = open("/mnt/file", O_RDONLY | O_CLOEXEC), pagemap = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
    volatile char *memory;
    sync();
    write_file("/proc/sys/vm/drop_caches", "3");
    memory = mmap(NULL, 256 * PAGE, PROT_READ, MAP_PRIVATE, file, 0);
    CHECK(memory != MAP_FAILED);
    madvise((void *)memory, 256 * PAGE, advice);
    CHECK(memory[128 * PAGE] == 'x');
    CHECK(mincore((void *)memory, 256 * PAGE, pages) == 0);
    /* Once more with all pages in the cache, in a mapping of its own. */
    CHECK(pread(file, (char *)map(256), 256 * PAGE, 0) == 256 * (long)PAGE);
    volatile char *again = mmap(NULL, 256 * PAGE, PROT_READ, MAP_PRIVATE, file, 0);
    CHECK(again[128 * PAGE] == 'x');
    CHECK(pread(pagemap, entries, sizeof entries, (uintptr_t)again / PAGE * 8) == sizeof entries);
    *resident = *mapped = 0;
    for (int at = 0; at < 256; at++) {
        *resident += pages[at] & 1;
        *mapped += entries[at] >> 63;
    }
    /* Mapped pages would stay in the cache. */
    munmap((void *)memory, 256 * PAGE);
    munmap((void *)again, 256 * PAGE);
    close(file);
    close(pagemap);
}

static void resident_after_touch(int *resident, int *mapped)
{
    resident_after_touch_as(MADV_NORMAL, resident, mapped);
}

/* A page in a large folio, touched alone: how many pages are mapped after it. */
static int mapped_of_large(void)
{
    enum { HUGE = 512 };
    static char page[PAGE];
    uint64_t entries[HUGE];
    int mapped = 0, file, pagemap = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
    volatile char *memory = map(2 * HUGE);
    mkdir("/tmp/large", 0755);
    CHECK(mount("none", "/tmp/large", "tmpfs", 0, has_thp() ? "huge=always" : NULL) == 0);
    file = open("/tmp/large/file", O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    for (int at = 0; at < HUGE; at++) CHECK(write(file, page, PAGE) == (ssize_t)PAGE);
    memory = (volatile char *)(((uintptr_t)memory + HUGE * PAGE - 1) & ~(HUGE * PAGE - 1));
    CHECK(mmap((void *)memory, HUGE * PAGE, PROT_READ, MAP_SHARED | MAP_FIXED, file, 0) == memory);
    CHECK(memory[128 * PAGE] == 0);
    CHECK(pread(pagemap, entries, sizeof entries, (uintptr_t)memory / PAGE * 8) == sizeof entries);
    for (int at = 0; at < HUGE; at++) mapped += (int)(entries[at] >> 63);
    munmap((void *)memory, HUGE * PAGE);
    close(file);
    close(pagemap);
    CHECK(umount("/tmp/large") == 0);
    return mapped;
}

void test_prepaging(void)
{
    int resident, mapped;
    resident_after_touch(&resident, &mapped);
    CHECK(resident > 1 && mapped > 1, "%d resident, %d mapped", resident, mapped);
    write_file("/proc/sys/vm/disable_prepaging", "1");
    resident_after_touch(&resident, &mapped);
    CHECK(resident == 1 && mapped > 1, "%d resident, %d mapped", resident, mapped);
    resident_after_touch_as(MADV_HUGEPAGE, &resident, &mapped);
    CHECK(resident == 1, "%d resident", resident);
    CHECK(mapped_of_large() > 1);
    write_file("/proc/sys/vm/disable_prepaging", "2");
    resident_after_touch(&resident, &mapped);
    CHECK(resident == 1 && mapped == 1, "%d resident, %d mapped", resident, mapped);
    mapped = mapped_of_large();
    CHECK(mapped == 1, "%d mapped", mapped);
    write_file("/proc/sys/vm/disable_prepaging", "0");
}

void test_demand(void)
{
    struct page_hint asked = hint("usual", 0);
    int resident, mapped;
    asked.flags = PAGE_HINT_DEMAND;
    CHILD({
        volatile char *memory = map(2048);
        set(PAGE_HINTS_SET_DEFAULT, asked);
        resident_after_touch(&resident, &mapped);
        CHECK(resident == 1 && mapped == 1, "%d resident, %d mapped", resident, mapped);
        resident_after_touch_as(MADV_HUGEPAGE, &resident, &mapped);
        CHECK(resident == 1 && mapped == 1, "%d resident, %d mapped", resident, mapped);
        mapped = mapped_of_large();
        CHECK(mapped == 1, "%d mapped", mapped);
        /* It places nothing, and huge pages stay. */
        madvise((void *)memory, 2048 * PAGE, MADV_HUGEPAGE);
        touch(memory, 2048);
        CHECK(has_huge(memory) == has_thp() && counters().placed == 0 && fallen(counters()) == 0);
        /* A child fetches as its parent does, until it clears the hint. */
        CHILD({
            int file = hints_of(0, O_RDWR);
            resident_after_touch(&resident, &mapped);
            CHECK(resident == 1 && mapped == 1, "%d resident, %d mapped", resident, mapped);
            EXPECT(PAGE_HINTS_CLEAR, (&(struct page_hint_range){0, 0}), 0);
            resident_after_touch(&resident, &mapped);
            CHECK(resident > 1 && mapped > 1, "%d resident, %d mapped", resident, mapped);
        });
    });
    /* Together with a placement, and for one process only. */
    CHILD({
        volatile char *memory = map(64);
        struct page_hint colors = hint("page-coloring", 16);
        colors.flags = PAGE_HINT_DEMAND;
        set(PAGE_HINTS_SET_DEFAULT, colors);
        resident_after_touch(&resident, &mapped);
        CHECK(resident == 1 && mapped == 1, "%d resident, %d mapped", resident, mapped);
        touch(memory, 64);
        check_colors(memory, 64, 16);
    });
    resident_after_touch(&resident, &mapped);
    CHECK(resident > 1 && mapped > 1, "%d resident, %d mapped", resident, mapped);
}

/* A file's pages in the page cache, through a mapping of their own. */
static volatile char *map_cached(const char *path, size_t pages)
{
    int file = open(path, O_RDONLY | O_CLOEXEC);
    volatile char *memory = mmap(NULL, pages * PAGE, PROT_READ, MAP_SHARED, file, 0);
    CHECK(file >= 0 && memory != MAP_FAILED);
    for (size_t at = 0; at < pages; at++) (void)memory[at * PAGE];
    close(file);
    return memory;
}

static void drop_caches(void)
{
    sync();
    write_file("/proc/sys/vm/drop_caches", "3");
}

/* Pages 0, 1, 2 ... of a file have colors one after another, from any one. */
static void check_round(const char *path, size_t pages, unsigned colors)
{
    volatile char *memory = map_cached(path, pages);
    uint64_t first = frame_of(memory);
    for (size_t at = 0; at < pages; at++) {
        uint64_t frame = frame_of(memory + at * PAGE);
        CHECK(frame % colors == (first + at) % colors, "%s, page %zu: %lx after %lx", path, at, frame, first);
    }
    munmap((void *)memory, pages * PAGE);
}

static void check_by_index(const char *path, size_t pages, unsigned colors)
{
    volatile char *memory = map_cached(path, pages);
    for (size_t at = 0; at < pages; at++) {
        uint64_t frame = frame_of(memory + at * PAGE);
        CHECK(frame % colors == at % colors, "%s, page %zu: %lx", path, at, frame);
    }
    munmap((void *)memory, pages * PAGE);
}

static void write_pages(const char *const *paths, int files, size_t pages)
{
    static char page[PAGE];
    int open_files[4];
    for (int at = 0; at < files; at++) open_files[at] = open(paths[at], O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    for (size_t at = 0; at < pages; at++)
        for (int file = 0; file < files; file++) CHECK(write(open_files[file], page, PAGE) == (ssize_t)PAGE);
    for (int at = 0; at < files; at++) close(open_files[at]);
}

void test_file(void)
{
    const char *paths[] = {"/mnt/one", "/mnt/two", "/tmp/three"};
    struct page_hint hopping = hint("bin-hopping", 16), asked;
    int file = hints_of(0, O_RDWR);
    hopping.flags = PAGE_HINT_FIRST;
    hopping.first = 5;
    /* By read() with readahead, and by page faults with it. */
    for (int faults = 0; faults < 2; faults++) {
        drop_caches();
        CHILD({
            unsigned long before;
            set(PAGE_HINTS_SET_FILE, hint("page-coloring", 64));
            before = counters().placed;
            if (!faults) {
                int data = open("/mnt/file", O_RDONLY | O_CLOEXEC);
                CHECK(read(data, (char *)map(256), 256 * PAGE) == 256 * (long)PAGE);
            }
            check_by_index("/mnt/file", 256, 64);
            CHECK(counters().placed - before >= 256 && fallen(counters()) == 0);
        });
    }
    /* What is in the cache stays where it is, for a process with another hint as well. */
    set(PAGE_HINTS_SET_FILE, hopping);
    check_by_index("/mnt/file", 256, 64);
    /* A round of its own for each inode, on a disk and in memory; as the count of an inode says. */
    write_pages(paths, 3, 48);
    for (int at = 0; at < 3; at++) {
        volatile char *memory = map_cached(paths[at], 1);
        CHECK(frame_of(memory) % 16 == 5, "%s begins with %lx", paths[at], frame_of(memory));
        munmap((void *)memory, PAGE);
        check_round(paths[at], 48, 16);
    }
    /* Without a first color inodes begin with different ones. */
    CHILD({
        unsigned seen = 0;
        set(PAGE_HINTS_SET_FILE, hint("bin-hopping", 16));
        for (int at = 0; at < 16; at++) {
            char path[32];
            const char *one[] = {path};
            volatile char *memory;
            snprintf(path, sizeof path, "/mnt/small%d", at);
            write_pages(one, 1, 1);
            memory = map_cached(path, 1);
            seen |= 1U << frame_of(memory) % 16;
            munmap((void *)memory, PAGE);
        }
        /* Not before: the next file would have the same inode. */
        for (int at = 0; at < 16; at++) {
            char path[32];
            snprintf(path, sizeof path, "/mnt/small%d", at);
            unlink(path);
        }
        CHECK(__builtin_popcount(seen) >= 4, "colors %x", seen);
    });
    /* Shared anonymous memory is a file without a name. */
    CHILD({
        volatile char *memory = mmap(NULL, 64 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        set(PAGE_HINTS_SET_FILE, hint("page-coloring", 16));
        touch(memory, 64);
        for (size_t at = 0; at < 64; at++) CHECK(frame_of(memory + at * PAGE) % 16 == at % 16, "page %zu", at);
    });
    /* A large folio stays large, and is counted. */
    if (has_thp()) {
        CHECK(mkdir("/tmp/huge", 0755) == 0 && mount("none", "/tmp/huge", "tmpfs", 0, "huge=always") == 0);
        const char *large[] = {"/tmp/huge/large"};
        long before = statistic("bin-hopping", "large");
        volatile char *memory;
        write_pages(large, 1, 512);
        memory = map_cached(large[0], 512);
        for (size_t at = 0; at < 512; at++) CHECK(frame_of(memory + at * PAGE) == frame_of(memory) + at, "page %zu", at);
        CHECK(statistic("bin-hopping", "large") > before);
        munmap((void *)memory, 512 * PAGE);
        CHECK(umount("/tmp/huge") == 0);
    }
    /* Hints about files and about memory do not replace each other; fork keeps both. */
    set(PAGE_HINTS_SET_DEFAULT, hint("page-coloring", 12));
    CHILD({
        asked = (struct page_hint){.size = sizeof asked};
        file = hints_of(0, O_RDWR);
        CHECK(!command(file, PAGE_HINTS_GET_FILE, &asked) && !strcmp(asked.strategy, "bin-hopping"));
        CHECK(asked.colors == 16 && asked.first == 5 && asked.flags == PAGE_HINT_FIRST);
        CHECK(!command(file, PAGE_HINTS_GET, &asked) && asked.colors == 12);
        EXPECT(PAGE_HINTS_CLEAR, (&(struct page_hint_range){0, 0}), 0);
        EXPECT(PAGE_HINTS_GET_FILE, &asked, ENOENT);
    });
    for (int at = 0; at < 3; at++) unlink(paths[at]);
    /* What a file hint does not take. */
    {
        unsigned long frame = 1000;
        struct page_hint bad = ranged(hint("exact", 0), map(1), 1);
        bad.values = (uintptr_t)&frame;
        bad.value_count = 1;
        EXPECT(PAGE_HINTS_SET_FILE, &bad, EINVAL);
        bad = hint("page-coloring", 16);
        bad.flags = PAGE_HINT_THP;
        EXPECT(PAGE_HINTS_SET_FILE, &bad, EINVAL);
        bad.flags = PAGE_HINT_DEMAND;
        EXPECT(PAGE_HINTS_SET_FILE, &bad, EINVAL);
        bad = hint("usual", 0);
        EXPECT(PAGE_HINTS_SET_FILE, &bad, EINVAL);
        bad = hint("no-such", 16);
        EXPECT(PAGE_HINTS_SET_FILE, &bad, ENOENT);
        EXPECT(PAGE_HINTS_SET_FILE, NULL, EFAULT);
        expect(hints_of(0, O_RDONLY), PAGE_HINTS_SET_FILE, &hopping, EBADF, __LINE__);
    }
}

/* A new file on the disk: how many of its pages lie on each node. */
static void count_nodes(size_t pages, size_t nodes[2])
{
    const char *path[] = {"/mnt/nodes"};
    volatile char *memory;
    nodes[0] = nodes[1] = 0;
    write_pages(path, 1, pages);
    memory = map_cached(path[0], pages);
    for (size_t at = 0; at < pages; at++) {
        int node = node_of(memory + at * PAGE);
        CHECK(node == 0 || node == 1, "page %zu: node %d", at, node);
        nodes[node]++;
    }
    munmap((void *)memory, pages * PAGE);
    unlink(path[0]);
}

/* As many pages on one node as on the other, but for what the file system needs in between. */
static void check_both_nodes(const char *how)
{
    size_t nodes[2];
    count_nodes(1000, nodes);
    printf("%s: %zu pages on one node, %zu on the other\n", how, nodes[0], nodes[1]);
    CHECK(nodes[0] >= 450 && nodes[1] >= 450, "%s", how);
}

/* Whoever goes round the nodes does so by one for each page, whether it is hinted or not. */
static void check_rounds(int is_policy)
{
    long hits = vmstat("numa_interleave");
    unsigned long anywhere[] = {ANYWHERE};
    struct page_hint nothing = hint("modulo", 16);
    nothing.values = (uintptr_t)anywhere;
    nothing.value_count = 1;
    check_both_nodes("without a hint");
    set(PAGE_HINTS_SET_DEFAULT, hint("page-coloring", 16));
    check_both_nodes("without a file hint");
    set(PAGE_HINTS_SET_FILE, hint("page-coloring", 16));
    check_both_nodes("placed");
    set(PAGE_HINTS_SET_FILE, nothing);
    check_both_nodes("not placed");
    hits = vmstat("numa_interleave") - hits;
    CHECK(!is_policy || hits >= 4000, "of 4000 pages of an interleaving policy %ld were counted", hits);
}

/* Since the first hint of a boot the kernel asks for hints, of all processes. */
static void have_been_hinted(void)
{
    CHILD(set(PAGE_HINTS_SET_FILE, hint("page-coloring", 16)));
}

void test_file_interleave(void)
{
    enum { WEIGHTED_INTERLEAVE = 6 };
    const int modes[] = {MPOL_INTERLEAVE, WEIGHTED_INTERLEAVE};
    unsigned long both = 3;
    have_been_hinted();
    for (int at = 0; at < 2; at++)
        CHILD({
            CHECK(syscall(SYS_set_mempolicy, modes[at], &both, 64) == 0);
            check_rounds(modes[at] == MPOL_INTERLEAVE);
        });
}

/* memory_spread_page, which only groups of version 1 have. */
void test_file_spread(void)
{
    char text[16];
    have_been_hinted();
    mkdir("/tmp/cpuset", 0755);
    CHECK(mount("none", "/tmp/cpuset", "cgroup", 0, "cpuset") == 0);
    CHECK(mkdir("/tmp/cpuset/spread", 0755) == 0);
    write_file("/tmp/cpuset/spread/cpuset.cpus", "0-1");
    write_file("/tmp/cpuset/spread/cpuset.mems", "0-1");
    write_file("/tmp/cpuset/spread/cpuset.memory_spread_page", "1");
    CHILD({
        snprintf(text, sizeof text, "%d", getpid());
        write_file("/tmp/cpuset/spread/tasks", text);
        check_rounds(0);
    });
    usleep(100000);
    CHECK(rmdir("/tmp/cpuset/spread") == 0 && umount("/tmp/cpuset") == 0);
}

/* Blocks of memory that cannot move, as /proc/pagetypeinfo has it. */
static long unmovable_blocks(void)
{
    char line[512];
    long blocks = 0, these;
    int counts = 0;
    FILE *file = fopen("/proc/pagetypeinfo", "re");
    CHECK(file != NULL);
    while (fgets(line, sizeof line, file)) {
        char *zone = strstr(line, "zone");
        if (!strncmp(line, "Number of blocks", 16)) counts = 1;
        if (counts && zone && sscanf(zone, "zone %*s %ld", &these) == 1) blocks += these;
    }
    fclose(file);
    CHECK(counts);
    return blocks;
}

/* Pages that cannot move, of one color: no block of movable memory becomes theirs for the color. */
void test_file_unmovable(void)
{
    enum { COUNT = 2048 };
    CHECK(mkdir("/tmp/ramfs", 0755) == 0 && mount("ramfs", "/tmp/ramfs", "ramfs", 0, NULL) == 0);
    CHILD({
        static char page[PAGE];
        unsigned long color = 3;
        struct page_hint asked = hint("modulo", 64);
        int file = open("/tmp/ramfs/file", O_RDWR | O_CREAT | O_CLOEXEC, 0600);
        long before = unmovable_blocks();
        asked.values = (uintptr_t)&color;
        asked.value_count = 1;
        set(PAGE_HINTS_SET_FILE, asked);
        for (int at = 0; at < COUNT; at++) {
            CHECK(write(file, page, PAGE) == (ssize_t)PAGE);
            usleep(1000);
        }
        printf("%ld more blocks of %d pages; %llu were placed\n", unmovable_blocks() - before, COUNT, counters().placed);
        CHECK(unmovable_blocks() - before <= COUNT / 512 + 2);
    });
    CHECK(umount("/tmp/ramfs") == 0);
}

/* Pages to be written to go to the other node when one is at its dirty limit, hinted or not. */
void test_file_dirty(void)
{
    write_file("/proc/sys/vm/dirty_bytes", "4194304");
    /* As high as can be: nothing is written back meanwhile. */
    write_file("/proc/sys/vm/dirty_background_bytes", "4190208");
    for (int is_hinted = 0; is_hinted < 2; is_hinted++)
        CHILD({
            size_t nodes[2] = {0, 0};
            stay_on_first_node();
            if (is_hinted) set(PAGE_HINTS_SET_FILE, hint("page-coloring", 16));
            /* Half of the limit is a node's. What is written back meanwhile all the same leaves room for more. */
            for (int attempt = 0; attempt < 5 && !(nodes[0] > 300 && nodes[1] > 200); attempt++) {
                sync();
                count_nodes(900, nodes);
                printf("%s hint: %zu pages on the near node, %zu on the other\n", is_hinted ? "with a" : "without", nodes[0],
                       nodes[1]);
            }
            CHECK(nodes[0] > 300 && nodes[1] > 200);
        });
    write_file("/proc/sys/vm/dirty_ratio", "20");
    write_file("/proc/sys/vm/dirty_background_ratio", "10");
}

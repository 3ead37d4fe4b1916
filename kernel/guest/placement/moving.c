/* Pages that move: remapped, compacted, sent to another node. */
#include "tests.h"

#include <linux/mempolicy.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/time.h>

/* Frames of `pages` pages, in their order. */
static uint64_t *frames_of(volatile char *memory, size_t pages)
{
    uint64_t *found = malloc(pages * sizeof *found);
    for (size_t at = 0; at < pages; at++) found[at] = frame_of(memory + at * PAGE);
    return found;
}

static struct page_hint_remap remap(volatile char *memory, size_t pages, unsigned flags)
{
    struct page_hint_remap moved = {.start = (uintptr_t)memory, .length = pages * PAGE, .flags = flags};
    int file = hints_of(0, O_RDWR | O_CLOEXEC), error = command(file, PAGE_HINTS_REMAP, &moved);
    CHECK(!error, "error %d", error);
    CHECK(moved.moved + moved.there + moved.failed <= pages);
    close(file);
    return moved;
}

static void check_contents(volatile char *memory, size_t pages)
{
    for (size_t at = 0; at < pages; at++) CHECK(memory[at * PAGE] == (char)(at + 1), "page %zu", at);
}

/* Pages that were there before the hint. */
void test_remap(void)
{
    enum { COUNT = 512 };
    char *held = fragment((size_t)free_pages() / 2);
    volatile char *memory = map(COUNT), *other = map(COUNT);
    struct page_hint_remap moved;
    madvise((void *)memory, COUNT * PAGE, MADV_NOHUGEPAGE);
    touch(memory, COUNT);
    moved = remap(memory, COUNT, 0);
    CHECK(moved.there == COUNT && !moved.moved, "%llu without a hint", moved.moved);
    set(PAGE_HINTS_SET_RANGE, ranged(hint("page-coloring", 16), memory, COUNT));
    moved = remap(memory, COUNT, 0);
    printf("moved %llu there %llu failed %llu\n", moved.moved, moved.there, moved.failed);
    CHECK(moved.moved + moved.there == COUNT && moved.moved > COUNT / 2);
    check_colors(memory, COUNT, 16);
    check_contents(memory, COUNT);
    moved = remap(memory, COUNT, 0);
    CHECK(moved.there == COUNT);
    /* A sequence: each page takes the next bin. */
    set(PAGE_HINTS_SET_RANGE, ranged(hint("bin-hopping", 16), memory, COUNT));
    moved = remap(memory, COUNT, 0);
    CHECK(moved.moved + moved.there == COUNT);
    for (size_t at = 1; at < COUNT; at++)
        CHECK(frame_of(memory + at * PAGE) % 16 == (frame_of(memory + (at - 1) * PAGE) + 1) % 16, "page %zu", at);
    check_contents(memory, COUNT);
    /* What was never touched stays so; what a child shares stays where it is. */
    set(PAGE_HINTS_SET_RANGE, ranged(hint("page-coloring", 16), other, COUNT));
    moved = remap(other, COUNT, 0);
    CHECK(!moved.moved && !moved.there && !moved.failed);
    set(PAGE_HINTS_SET_RANGE, ranged(hint("page-coloring", 16), memory, COUNT));
    uint64_t *before = frames_of(memory, COUNT);
    CHILD({
        moved = remap(memory, COUNT, 0);
        CHECK(!moved.moved && moved.failed == COUNT, "%llu moved", moved.moved);
        for (size_t at = 0; at < COUNT; at++) CHECK(frame_of(memory + at * PAGE) == before[at]);
    });
    free(before);
    CHECK(held != NULL);
}

static void on_alarm(int number)
{
    (void)number;
}

/* Terabytes without pages take no time; where there are pages, a signal ends the call. */
void test_remap_sparse(void)
{
    enum { COUNT = 8192 };
    size_t bytes = 1UL << 45;
    volatile char *sparse = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    int child, status, waited = 0;
    CHECK(sparse != MAP_FAILED);
    sparse[bytes / 2] = 1;
    child = fork();
    if (!child) {
        struct page_hint_remap all = {.start = (uintptr_t)sparse, .length = bytes};
        sparse[bytes / 2] = 2;
        _exit(command(hints_of(0, O_RDWR), PAGE_HINTS_REMAP, &all) || all.there != 1);
    }
    for (; waited < 100 && waitpid(child, &status, WNOHANG) == 0; waited++) usleep(100000);
    if (waited == 100) kill(child, SIGKILL);
    CHECK(waited < 100 && status == 0, "%d s, status %x", waited / 10, (unsigned)status);
    CHILD({
        volatile char *memory = map(COUNT);
        struct page_hint_remap dense;
        struct itimerval often = {{0, 20000}, {0, 20000}};
        struct itimerval never = {{0, 0}, {0, 0}};
        int file = hints_of(0, O_RDWR);
        int is_ended = 0;
        struct sigaction action = {.sa_handler = on_alarm};
        madvise((void *)memory, COUNT * PAGE, MADV_NOHUGEPAGE);
        touch(memory, COUNT);
        CHECK(sigaction(SIGALRM, &action, NULL) == 0 && setitimer(ITIMER_REAL, &often, NULL) == 0);
        /* Under signals without an end each call goes on with what is left, and all pages are moved. */
        for (int round = 0; round < 20 && !is_ended; round++) {
            set(PAGE_HINTS_SET_RANGE, ranged(hint("page-coloring", round % 2 ? 8 : 16), memory, COUNT));
            dense = (struct page_hint_remap){.start = (uintptr_t)memory, .length = COUNT * PAGE};
            while (command(file, PAGE_HINTS_REMAP, &dense) == EINTR) is_ended = 1;
            CHECK(dense.length == 0, "%llu bytes are left", dense.length);
        }
        CHECK(setitimer(ITIMER_REAL, &never, NULL) == 0);
        CHECK(is_ended, "no signal ended a call");
        set(PAGE_HINTS_SET_RANGE, ranged(hint("page-coloring", 16), memory, COUNT));
        remap(memory, COUNT, 0);
        check_colors(memory, COUNT, 16);
        check_contents(memory, COUNT);
    });
}

/* Frames in use: what lies in them makes room, unless it is pinned or cannot move. */
void test_remap_evicts(void)
{
    enum { COUNT = 64 };
    char *held = fragment((size_t)free_pages() / 2);
    volatile char *memory = map(COUNT), *other = map(COUNT);
    struct page_hint asked = hint("exact", 0), pin = hint("usual", 0);
    struct page_hint_remap moved;
    touch(memory, COUNT);
    touch(other, COUNT);
    uint64_t *taken = frames_of(memory, COUNT);
    size_t got = 0;
    asked.values = (uintptr_t)taken;
    asked.value_count = COUNT;
    set(PAGE_HINTS_SET_RANGE, ranged(asked, other, COUNT));
    moved = remap(other, COUNT, 0);
    for (size_t at = 0; at < COUNT; at++) {
        got += frame_of(other + at * PAGE) == taken[at];
        CHECK(frame_of(memory + at * PAGE) != frame_of(other + at * PAGE));
    }
    printf("of %d frames in use %zu were given\n", COUNT, got);
    /* Somebody else may have been given one or another in between. */
    CHECK(moved.moved == got && moved.failed == COUNT - got && got >= COUNT - 8);
    check_contents(memory, COUNT);
    check_contents(other, COUNT);
    free(taken);
    taken = frames_of(memory, COUNT);
    asked.values = (uintptr_t)taken;
    set(PAGE_HINTS_SET_RANGE, ranged(asked, other, COUNT));
    /* A child that has given up its rights has the hint, but moves nobody's pages for it. */
    CHILD({
        touch(other, COUNT);
        CHECK(setgid(1000) == 0 && setuid(1000) == 0 && prctl(PR_SET_DUMPABLE, 1) == 0);
        moved = remap(other, COUNT, 0);
        CHECK(moved.failed == COUNT && !moved.moved, "%llu moved", moved.moved);
    });
    for (size_t at = 0; at < COUNT; at++) CHECK(frame_of(memory + at * PAGE) == taken[at]);
    /* Pinned pages keep their frames. */
    pin.flags = PAGE_HINT_PIN;
    set(PAGE_HINTS_SET_RANGE, ranged(pin, memory, COUNT));
    moved = remap(other, COUNT, 0);
    CHECK(moved.failed == COUNT && !moved.moved, "%llu moved", moved.moved);
    for (size_t at = 0; at < COUNT; at++) CHECK(frame_of(memory + at * PAGE) == taken[at]);
    /* So do the kernel's own, and there is no frame without memory. */
    uint64_t kernels[] = {0x1000000 / PAGE, 1UL << 40};
    asked.values = (uintptr_t)kernels;
    asked.value_count = 2;
    set(PAGE_HINTS_SET_RANGE, ranged(asked, other, 2));
    moved = remap(other, 2, 0);
    CHECK(moved.failed == 2);
    check_contents(other, COUNT);
    free(taken);
    CHECK(held != NULL);
}

/* A color moves no page to another node, to which its memory may not go: not even when its own is full. */
void test_remap_stays(void)
{
    enum { COUNT = 256, STEP = 256 };
    CHILD({
        volatile char *memory = map(COUNT);
        size_t most = (size_t)free_pages(), filled = 0;
        volatile char *filling = map(most);
        unsigned long mask = 2;
        struct page_hint_remap moved;
        CHECK(syscall(SYS_mbind, memory, COUNT * PAGE, MPOL_BIND, &mask, 64, 0) == 0);
        touch(memory, COUNT);
        CHECK(syscall(SYS_mbind, filling, most * PAGE, MPOL_PREFERRED, &mask, 64, 0) == 0);
        do {
            CHECK(filled + STEP <= most, "the node is never full");
            touch(filling + filled * PAGE, STEP);
            filled += STEP;
        } while (node_of(filling + (filled - 1) * PAGE) == 1);
        set(PAGE_HINTS_SET_RANGE, ranged(hint("page-coloring", 16), memory, COUNT));
        moved = remap(memory, COUNT, 0);
        printf("moved %llu there %llu failed %llu\n", moved.moved, moved.there, moved.failed);
        CHECK(moved.moved + moved.there + moved.failed == COUNT);
        for (size_t at = 0; at < COUNT; at++) CHECK(node_of(memory + at * PAGE) == 1, "page %zu", at);
        check_contents(memory, COUNT);
    });
}

/* Frames of the other node are for processes whose cpuset allows it, whatever the caller's allows. */
void test_remap_cpuset(void)
{
    enum { COUNT = 16 };
    volatile char *memory = map(COUNT), *far = map(COUNT);
    struct page_hint asked = hint("exact", 0);
    unsigned long mask = 2;
    char text[16];
    int child, status, ready[2], done[2];
    struct page_hint_remap moved = {.start = (uintptr_t)memory, .length = COUNT * PAGE};
    CHECK(syscall(SYS_mbind, far, COUNT * PAGE, MPOL_BIND, &mask, 64, 0) == 0);
    touch(far, COUNT);
    uint64_t *wanted = frames_of(far, COUNT);
    munmap((void *)far, COUNT * PAGE);
    mkdir("/tmp/cpuset", 0755);
    CHECK(mount("none", "/tmp/cpuset", "cgroup", 0, "cpuset") == 0);
    CHECK(mkdir("/tmp/cpuset/near", 0755) == 0);
    write_file("/tmp/cpuset/near/cpuset.cpus", "0-1");
    write_file("/tmp/cpuset/near/cpuset.mems", "0");
    CHECK(pipe(ready) == 0 && pipe(done) == 0);
    child = fork();
    if (!child) {
        close(done[1]);
        snprintf(text, sizeof text, "%d", getpid());
        write_file("/tmp/cpuset/near/tasks", text);
        touch(memory, COUNT);
        asked.values = (uintptr_t)wanted;
        asked.value_count = COUNT;
        set(PAGE_HINTS_SET_RANGE, ranged(asked, memory, COUNT));
        CHECK(write(ready[1], text, 1) == 1 && read(done[0], text, 1) == 1);
        for (int at = 0; at < COUNT; at++) CHECK(node_of(memory + at * PAGE) == 0, "page %d", at);
        CHECK(write(ready[1], text, 1) == 1 && read(done[0], text, 1) == 1);
        size_t got = 0;
        for (int at = 0; at < COUNT; at++) got += frame_of(memory + at * PAGE) == wanted[at];
        check_contents(memory, COUNT);
        CHECK(got >= COUNT - 4, "%zu frames", got);
        _exit(0);
    }
    close(ready[1]);
    CHECK(read(ready[0], text, 1) == 1);
    /* Frames on the list of a processor are drained ten times a second. */
    usleep(200000);
    int file = hints_of(child, O_RDWR | O_CLOEXEC);
    EXPECT(PAGE_HINTS_REMAP, &moved, 0);
    CHECK(moved.failed == COUNT && !moved.moved, "%llu moved", moved.moved);
    CHECK(write(done[1], text, 1) == 1 && read(ready[0], text, 1) == 1);
    write_file("/tmp/cpuset/near/cpuset.mems", "0-1");
    moved = (struct page_hint_remap){.start = (uintptr_t)memory, .length = COUNT * PAGE};
    EXPECT(PAGE_HINTS_REMAP, &moved, 0);
    printf("moved %llu there %llu failed %llu\n", moved.moved, moved.there, moved.failed);
    CHECK(write(done[1], text, 1) == 1 && waitpid(child, &status, 0) == child && status == 0);
    usleep(100000);
    CHECK(rmdir("/tmp/cpuset/near") == 0 && umount("/tmp/cpuset") == 0);
    free(wanted);
}

/* Pages whose frames no longer have the colors of `then`. */
static size_t lost(volatile char *memory, size_t pages, const uint64_t *then, unsigned colors)
{
    size_t count = 0;
    for (size_t at = 0; at < pages; at++) count += frame_of(memory + at * PAGE) % colors != then[at] % colors;
    return count;
}

static void remember(volatile char *memory, size_t pages, uint64_t *then)
{
    for (size_t at = 0; at < pages; at++) then[at] = frame_of(memory + at * PAGE);
}

static size_t elsewhere(volatile char *memory, size_t pages, const uint64_t *then)
{
    size_t count = 0;
    for (size_t at = 0; at < pages; at++) count += frame_of(memory + at * PAGE) != then[at];
    return count;
}

/* Compaction of fragmented memory moves pages; each has its color afterwards, or is counted. */
void test_compaction(void)
{
    enum { COUNT = 4096 };
    static uint64_t then[2][COUNT];
    const char *names[] = {"page-coloring", "bin-hopping"};
    volatile char *memory[2];
    long kept[2], moved[2], scanned[2];
    char *held;
    /* What lies on the other node is not fragmented, and has nothing to compact. */
    stay_on_first_node();
    held = fragment((size_t)free_pages() / 2);
    for (int at = 0; at < 2; at++) {
        memory[at] = map(COUNT);
        set(PAGE_HINTS_SET_RANGE, ranged(hint(names[at], 16), memory[at], COUNT));
        touch(memory[at], COUNT);
        remember(memory[at], COUNT, then[at]);
        kept[at] = statistic(names[at], "kept");
        moved[at] = statistic(names[at], "moved");
        scanned[at] = statistic(names[at], "scanned");
    }
    CHECK(fallen(counters()) == 0);
    munmap(held, PAGE);
    for (int round = 0; round < 3; round++) write_file("/proc/sys/vm/compact_memory", "1");
    for (int at = 0; at < 2; at++) {
        size_t other = elsewhere(memory[at], COUNT, then[at]), without = lost(memory[at], COUNT, then[at], 16);
        kept[at] = statistic(names[at], "kept") - kept[at];
        moved[at] = statistic(names[at], "moved") - moved[at];
        scanned[at] = statistic(names[at], "scanned") - scanned[at];
        printf("%s: %zu of %d pages have other frames, %zu other colors; %ld targets kept the color, %ld did not; "
               "%ld entries of free lists were looked at\n",
               names[at], other, COUNT, without, kept[at], moved[at], scanned[at]);
        CHECK(other > COUNT / 8 && kept[at] > 0);
        CHECK(without <= (size_t)moved[at]);
        CHECK(without < other / 50, "nearly all colors are there to be had");
        for (size_t page = 0; page < COUNT; page++) CHECK(memory[at][page * PAGE] == (char)(page + 1));
    }
}

/* Pinned pages stay where they are, until the hint goes or somebody asks for them. */
void test_pin(void)
{
    enum { COUNT = 2048 };
    static uint64_t then[2][COUNT];
    static void *pages[COUNT];
    static int nodes[COUNT], status[COUNT];
    volatile char *pinned = map(COUNT), *other = map(COUNT);
    struct page_hint pin = hint("page-coloring", 16), asked = {.size = sizeof asked, .start = (uintptr_t)pinned};
    char *held;
    int file = hints_of(0, O_RDWR);
    long refused = statistic("page-coloring", "pinned");
    stay_on_first_node();
    held = fragment((size_t)free_pages() / 2);
    pin.flags = PAGE_HINT_PIN;
    set(PAGE_HINTS_SET_RANGE, ranged(pin, pinned, COUNT));
    set(PAGE_HINTS_SET_RANGE, ranged(hint("page-coloring", 16), other, COUNT));
    CHECK(!command(file, PAGE_HINTS_GET, &asked) && asked.flags == PAGE_HINT_PIN);
    touch(pinned, COUNT);
    touch(other, COUNT);
    remember(pinned, COUNT, then[0]);
    remember(other, COUNT, then[1]);
    munmap(held, PAGE);
    for (int round = 0; round < 3; round++) write_file("/proc/sys/vm/compact_memory", "1");
    refused = statistic("page-coloring", "pinned") - refused;
    printf("%zu of %d pinned pages and %zu others have other frames; %ld migrations were refused\n",
           elsewhere(pinned, COUNT, then[0]), COUNT, elsewhere(other, COUNT, then[1]), refused);
    CHECK(elsewhere(pinned, COUNT, then[0]) == 0 && refused > COUNT / 8);
    CHECK(elsewhere(other, COUNT, then[1]) > COUNT / 8);
    /* What a child shares with the process stays, too, though the child has taken its hints back. */
    CHILD({
        struct page_hint_range all = {0, 0};
        file = hints_of(0, O_RDWR);
        CHECK(!command(file, PAGE_HINTS_CLEAR, &all));
        write_file("/proc/sys/vm/compact_memory", "1");
        CHECK(elsewhere(pinned, COUNT, then[0]) == 0);
    });
    /* Without the flag the same range moves. */
    set(PAGE_HINTS_SET_RANGE, ranged(hint("page-coloring", 16), pinned, COUNT));
    for (int round = 0; round < 3; round++) write_file("/proc/sys/vm/compact_memory", "1");
    printf("without the flag %zu\n", elsewhere(pinned, COUNT, then[0]));
    CHECK(elsewhere(pinned, COUNT, then[0]) > COUNT / 8);
    /* With it, somebody who asks for a migration still gets it. */
    set(PAGE_HINTS_SET_RANGE, ranged(pin, pinned, COUNT));
    remember(pinned, COUNT, then[0]);
    for (int at = 0; at < COUNT; at++) {
        pages[at] = (void *)(pinned + at * PAGE);
        nodes[at] = 1 - node_of(pinned);
    }
    CHECK(syscall(SYS_move_pages, 0, COUNT, pages, nodes, status, MPOL_MF_MOVE) == 0);
    CHECK(elsewhere(pinned, COUNT, then[0]) > COUNT / 8 && node_of(pinned) == nodes[0]);
    for (size_t at = 0; at < COUNT; at++) CHECK(pinned[at * PAGE] == (char)(at + 1));
}

static void set_khugepaged(const char *name, const char *value)
{
    char path[128];
    snprintf(path, sizeof path, "/sys/kernel/mm/transparent_hugepage/khugepaged/%s", name);
    write_file(path, value);
}

/* How often khugepaged has gone through all processes. */
static long scans(void)
{
    char text[32] = "";
    int file = open("/sys/kernel/mm/transparent_hugepage/khugepaged/full_scans", O_RDONLY | O_CLOEXEC);
    CHECK(read(file, text, sizeof text - 1) > 0);
    close(file);
    return atol(text);
}

/* Pinned pages are not made huge ones, whatever else their hint says; others are meanwhile. */
void test_pin_huge(void)
{
    enum { HUGE = 512, PIECES = 4, PINNED = 2, COLLAPSE = 25 };
    static uint64_t then[PIECES][HUGE];
    const struct page_hint hints[PIECES] = {hint("usual", 0), hint("page-coloring", 16), hint("page-coloring", 16)};
    const unsigned flags[PIECES] = {PAGE_HINT_PIN, PAGE_HINT_PIN | PAGE_HINT_THP, PAGE_HINT_THP};
    volatile char *all = map((2 * PIECES + 1) * HUGE), *piece[PIECES];
    int file = hints_of(0, O_RDWR | O_CLOEXEC), waited = 0;
    CHECK(mprotect((void *)all, (2 * PIECES + 1) * HUGE * PAGE, PROT_NONE) == 0);
    for (int at = 0; at < PIECES; at++) {
        /* Each is a mapping of its own, of one huge page. */
        piece[at] = (volatile char *)(((uintptr_t)all / PAGE / HUGE + 1 + 2 * (size_t)at) * HUGE * PAGE);
        CHECK(mprotect((void *)piece[at], HUGE * PAGE, PROT_READ | PROT_WRITE) == 0);
        CHECK(madvise((void *)piece[at], HUGE * PAGE, MADV_NOHUGEPAGE) == 0);
        touch(piece[at], HUGE);
        remember(piece[at], HUGE, then[at]);
        struct page_hint asked = ranged(hints[at], piece[at], HUGE);
        asked.flags = flags[at];
        /* The last one has none. */
        if (hints[at].size) EXPECT(PAGE_HINTS_SET_RANGE, &asked, 0);
    }
    for (int at = 0; at < PIECES; at++) CHECK(madvise((void *)piece[at], HUGE * PAGE, MADV_HUGEPAGE) == 0);
    set_khugepaged("pages_to_scan", "65536");
    set_khugepaged("scan_sleep_millisecs", "20");
    set_khugepaged("alloc_sleep_millisecs", "100");
    for (; waited < 600 && !(has_huge(piece[PINNED]) && has_huge(piece[PIECES - 1])); waited++) usleep(100000);
    /* A scan that began before that may not have come to all of them. */
    for (long before = scans(); waited < 1200 && scans() < before + 3; waited++) usleep(100000);
    set_khugepaged("pages_to_scan", "4096");
    set_khugepaged("scan_sleep_millisecs", "10000");
    set_khugepaged("alloc_sleep_millisecs", "60000");
    for (int at = 0; at < PIECES; at++) {
        printf("flags %x: %zu of %d pages have other frames\n", flags[at], elsewhere(piece[at], HUGE, then[at]), HUGE);
        CHECK(has_huge(piece[at]) == (at >= PINNED), "after %d tenths of a second", waited);
        CHECK(at >= PINNED || elsewhere(piece[at], HUGE, then[at]) == 0);
    }
    /* Nor when somebody asks for it, as long as the hint is there. */
    for (int at = 0; at < PINNED; at++) {
        struct page_hint_range range = {(uintptr_t)piece[at], HUGE * PAGE};
        int error = 0;
        CHECK(madvise((void *)piece[at], HUGE * PAGE, COLLAPSE) < 0 && errno == EINVAL);
        CHECK(elsewhere(piece[at], HUGE, then[at]) == 0);
        EXPECT(PAGE_HINTS_CLEAR, &range, 0);
        for (int round = 0; round < 20; round++) {
            error = madvise((void *)piece[at], HUGE * PAGE, COLLAPSE) ? errno : 0;
            if (!error) break;
            usleep(100000);
        }
        CHECK(!error && has_huge(piece[at]), "error %d", error);
    }
    for (int at = 0; at < PIECES; at++) check_contents(piece[at], HUGE);
}

/* A pin of one process is enough, though another that shares the pages has a hint without it. */
void test_pin_shared(void)
{
    enum { COUNT = 2048 };
    static uint64_t then[COUNT];
    volatile char *memory = map(COUNT);
    char *held;
    stay_on_first_node();
    held = fragment((size_t)free_pages() / 2);
    set(PAGE_HINTS_SET_DEFAULT, hint("page-coloring", 16));
    touch(memory, COUNT);
    munmap(held, PAGE);
    CHILD({
        struct page_hint pin = hint("page-coloring", 16);
        pin.flags = PAGE_HINT_PIN;
        set(PAGE_HINTS_SET_RANGE, ranged(pin, memory, COUNT));
        remember(memory, COUNT, then);
        for (int round = 0; round < 3; round++) write_file("/proc/sys/vm/compact_memory", "1");
        CHECK(elsewhere(memory, COUNT, then) == 0, "%zu have moved", elsewhere(memory, COUNT, then));
    });
}

/* Pages that are sent to the other node have their colors there; one that had to do without gets it. */
void test_migration(void)
{
    enum { COUNT = 512 };
    static uint64_t then[COUNT];
    static void *pages[COUNT];
    static int nodes[COUNT], status[COUNT];
    volatile char *memory = map(COUNT), *bins = map(COUNT);
    unsigned long mask = 1;
    long moved = statistic("page-coloring", "moved") + statistic("bin-hopping", "moved");
    CHECK(syscall(SYS_mbind, memory, COUNT * PAGE, MPOL_BIND, &mask, 64, 0) == 0);
    CHECK(syscall(SYS_mbind, bins, COUNT * PAGE, MPOL_BIND, &mask, 64, 0) == 0);
    /* Half of the pages lie anywhere before the hint comes. */
    touch(memory, COUNT / 2);
    set(PAGE_HINTS_SET_RANGE, ranged(hint("page-coloring", 64), memory, COUNT));
    set(PAGE_HINTS_SET_RANGE, ranged(hint("bin-hopping", 64), bins, COUNT));
    touch(memory, COUNT);
    touch(bins, COUNT);
    remember(bins, COUNT, then);
    for (int node = 1; node >= 0; node--) {
        for (int at = 0; at < COUNT; at++) {
            pages[at] = (void *)(memory + at * PAGE);
            nodes[at] = node;
        }
        CHECK(syscall(SYS_move_pages, 0, COUNT, pages, nodes, status, MPOL_MF_MOVE) == 0);
        check_colors(memory, COUNT, 64);
        /* The other way that moves: the policy of the range. */
        mask = 1UL << node;
        CHECK(syscall(SYS_mbind, bins, COUNT * PAGE, MPOL_BIND, &mask, 64, MPOL_MF_MOVE) == 0);
        CHECK(lost(bins, COUNT, then, 64) == 0);
        for (int at = 0; at < COUNT; at++) {
            CHECK(node_of(memory + at * PAGE) == node && node_of(bins + at * PAGE) == node);
            CHECK(memory[at * PAGE] == (char)(at + 1) && bins[at * PAGE] == (char)(at + 1));
        }
    }
    CHECK(elsewhere(bins, COUNT, then) > 0);
    CHECK(statistic("page-coloring", "moved") + statistic("bin-hopping", "moved") == moved);
    /* A page that parent and child share goes by the hint of one of them. */
    CHILD({
        CHECK(syscall(SYS_move_pages, getppid(), COUNT, pages, nodes, status, MPOL_MF_MOVE) == 0);
        check_colors(memory, COUNT, 64);
    });
}

/* Each test by its name: 0 and "ok", or 1 and what was wrong. */
#include "common.h"

#include <linux/mempolicy.h>
#include <linux/userfaultfd.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <time.h>

#include "vectors.h"

/* Holds back a random half of `pages` pages, so that free memory is single pages in no order. */
static char *fragment(size_t pages)
{
    char *memory = (char *)map(pages);
    size_t *order = malloc(pages * sizeof *order);
    madvise(memory, pages * PAGE, MADV_NOHUGEPAGE);
    touch(memory, pages);
    for (size_t at = 0; at < pages; at++) order[at] = at;
    srandom(1);
    for (size_t at = pages - 1; at > 0; at--) {
        size_t other = (size_t)random() % (at + 1), held = order[at];
        order[at] = order[other];
        order[other] = held;
    }
    for (size_t at = 0; at < pages / 2; at++) madvise(memory + order[at] * PAGE, PAGE, MADV_DONTNEED);
    free(order);
    return memory;
}

static void test_colors(void)
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

static void test_vectors(void)
{
    for (size_t at = 0; at < sizeof vectors / sizeof *vectors; at++) check_vector(&vectors[at]);
}

static void test_vectors_fragmented(void)
{
    char *held = fragment((size_t)free_pages() / 2);
    test_vectors();
    CHECK(statistic("page-coloring", "placed") > 0);
    munmap(held, PAGE);
}

static void test_hash(void)
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

static void test_default_and_ranges(void)
{
    volatile char *memory = map(96);
    struct page_hint_range range;
    struct page_hint asked;
    int file = hints_of(0, O_RDWR | O_CLOEXEC);
    set(PAGE_HINTS_SET_DEFAULT, hint("page-coloring", 16));
    set(PAGE_HINTS_SET_RANGE, ranged(hint("page-coloring", 64), memory, 64));
    /* Cuts a hole with another strategy into the first range. */
    set(PAGE_HINTS_SET_RANGE, ranged(hint("page-coloring", 12), memory + 16 * PAGE, 16));
    touch(memory, 96);
    check_colors(memory, 16, 64);
    check_colors(memory + 16 * PAGE, 16, 12);
    check_colors(memory + 32 * PAGE, 32, 64);
    check_colors(memory + 64 * PAGE, 32, 16);
    asked = (struct page_hint){.size = sizeof asked, .start = (uintptr_t)memory + 17 * PAGE};
    CHECK(!command(file, PAGE_HINTS_GET, &asked));
    CHECK(!strcmp(asked.strategy, "page-coloring") && asked.colors == 12 && asked.length == 16 * PAGE);
    CHECK(asked.start == (uintptr_t)memory + 16 * PAGE);
    asked = (struct page_hint){.size = sizeof asked, .start = (uintptr_t)memory + 70 * PAGE};
    CHECK(!command(file, PAGE_HINTS_GET, &asked) && asked.colors == 16 && asked.length == 0);
    range = (struct page_hint_range){(uintptr_t)memory, 96 * PAGE};
    CHECK(!command(file, PAGE_HINTS_CLEAR, &range));
    asked.start = (uintptr_t)memory;
    CHECK(!command(file, PAGE_HINTS_GET, &asked) && asked.colors == 16 && asked.length == 0);
    range = (struct page_hint_range){0, 0};
    CHECK(!command(file, PAGE_HINTS_CLEAR, &range));
    CHECK(command(file, PAGE_HINTS_GET, &asked) == ENOENT);
    {
        unsigned long before = counters().placed;
        touch(map(64), 64);
        CHECK(counters().placed == before);
    }
}

enum { KIND_PAGES = 64 };

static char kind_data[KIND_PAGES * PAGE] __attribute__((aligned(4096))) = {1};
static char kind_bss[KIND_PAGES * PAGE] __attribute__((aligned(4096)));

/* Touches pages of one kind, which lie as asked if the hint is for it; else none of them was asked for. */
static void touch_kind(volatile char *memory, size_t pages, int is_hinted)
{
    struct page_hint_counters before = counters();
    touch(memory, pages);
    if (is_hinted) {
        CHECK(counters().placed - before.placed >= pages);
        check_colors(memory, pages, 16);
    } else {
        CHECK(counters().placed == before.placed, "%llu placed", counters().placed - before.placed);
    }
    CHECK(fallen(counters()) == 0);
}

static __attribute__((noinline)) void touch_stack(int is_hinted)
{
    volatile char deep[(KIND_PAGES + 2) * PAGE];
    touch_kind((volatile char *)(((uintptr_t)deep + PAGE - 1) & ~(PAGE - 1)), KIND_PAGES, is_hinted);
}

static void touch_kinds(unsigned kinds)
{
    struct page_hint of = hint("page-coloring", 16), asked = {.size = sizeof asked};
    int file = hints_of(0, O_RDWR | O_CLOEXEC);
    volatile char *heap;
    of.kinds = kinds;
    set(PAGE_HINTS_SET_DEFAULT, of);
    CHECK(!command(file, PAGE_HINTS_GET, &asked) && asked.kinds == kinds);
    close(file);
    heap = sbrk((KIND_PAGES + 1) * PAGE);
    touch_kind((volatile char *)(((uintptr_t)heap + PAGE - 1) & ~(PAGE - 1)), KIND_PAGES, kinds & PAGE_HINT_HEAP);
    touch_kind(map(KIND_PAGES), KIND_PAGES, kinds & PAGE_HINT_ANON);
    touch_kind(kind_data, KIND_PAGES, kinds & PAGE_HINT_DATA);
    touch_kind(kind_bss, KIND_PAGES, kinds & PAGE_HINT_DATA);
    touch_stack(kinds & PAGE_HINT_STACK);
    /* A child has the hint, with its kinds. */
    CHILD(touch_kind(map(KIND_PAGES), KIND_PAGES, kinds & PAGE_HINT_ANON));
}

static void test_kinds(void)
{
    const unsigned every[] = {PAGE_HINT_HEAP, PAGE_HINT_ANON, PAGE_HINT_DATA, PAGE_HINT_STACK,
                              PAGE_HINT_HEAP | PAGE_HINT_STACK, PAGE_HINT_ANON | PAGE_HINT_DATA};
    for (size_t at = 0; at < sizeof every / sizeof *every; at++) CHILD(touch_kinds(every[at]));
}

static void test_per_process(void)
{
    int pipes[2];
    char byte;
    int child;
    CHECK(pipe(pipes) == 0);
    child = fork();
    if (!child) {
        volatile char *memory = map(256);
        CHECK(read(pipes[0], &byte, 1) == 1);
        touch(memory, 256);
        CHECK(counters().placed == 0 && fallen(counters()) == 0);
        _exit(0);
    }
    set(PAGE_HINTS_SET_DEFAULT, hint("page-coloring", 16));
    touch(map(256), 256);
    CHECK(counters().placed >= 256);
    CHECK(write(pipes[1], "x", 1) == 1);
    {
        int status;
        CHECK(waitpid(child, &status, 0) == child && status == 0);
    }
}

static void test_other_process(void)
{
    int to[2], from[2], child, file, status;
    char byte = 0;
    struct page_hint asked = hint("page-coloring", 16);
    CHECK(pipe(to) == 0 && pipe(from) == 0);
    child = fork();
    if (!child) {
        volatile char *memory = map(64);
        CHECK(read(to[0], &byte, 1) == 1);
        touch(memory, 64);
        check_colors(memory, 64, 16);
        _exit(0);
    }
    file = hints_of(child, O_RDWR);
    CHECK(file >= 0 && !command(file, PAGE_HINTS_SET_DEFAULT, &asked));
    CHECK(write(to[1], &byte, 1) == 1);
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    CHECK(command(file, PAGE_HINTS_SET_DEFAULT, &asked) == ESRCH);
}

static void test_fork(void)
{
    volatile char *memory = map(64), *bins = map(64);
    struct page_hint hopping = hint("bin-hopping", 16);
    hopping.flags = PAGE_HINT_FIRST;
    set(PAGE_HINTS_SET_RANGE, ranged(hint("page-coloring", 16), memory, 64));
    set(PAGE_HINTS_SET_RANGE, ranged(hopping, bins, 64));
    touch(memory, 64);
    touch(bins, 10);
    CHILD({
        /* Copies on write, in the child. */
        uint64_t shared = frame_of(memory);
        touch(memory, 64);
        CHECK(frame_of(memory) != shared);
        check_colors(memory, 64, 16);
        touch(bins + 10 * PAGE, 5);
        for (int at = 10; at < 15; at++) CHECK((int)(frame_of(bins + at * PAGE) % 16) == at % 16);
    });
    /* The child's bins were its own. */
    touch(bins + 10 * PAGE, 20);
    for (int at = 0; at < 30; at++) CHECK((int)(frame_of(bins + at * PAGE) % 16) == at % 16, "page %d", at);
}

static void test_private_file(void)
{
    int file = open("/tmp/file", O_RDWR | O_CREAT | O_TRUNC, 0600);
    volatile char *memory;
    CHECK(ftruncate(file, 64 * PAGE) == 0);
    memory = mmap(NULL, 64 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE, file, 0);
    set(PAGE_HINTS_SET_RANGE, ranged(hint("page-coloring", 16), memory, 64));
    for (int at = 0; at < 32; at++) CHECK(memory[at * PAGE] == 0);
    touch(memory, 64);
    check_colors(memory, 64, 16);
}

/* In an image started by exec: how many pages of 64 fresh ones were placed. */
static int exec_placed(void)
{
    touch(map(64), 64);
    return counters().placed >= 64 ? 1 : 0;
}

static int run(const char *path, const char *word, unsigned user)
{
    int status, child = fork();
    if (!child) {
        if (user) CHECK(setuid(user) == 0);
        execl(path, path, word, NULL);
        _exit(99);
    }
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status));
    return WEXITSTATUS(status);
}

static void test_exec(void)
{
    set(PAGE_HINTS_SET_DEFAULT, hint("page-coloring", 16));
    CHECK(run("/bin/placement", "exec-placed", 0) == 0);
    write_file("/proc/sys/vm/page_hints_exec", "1");
    CHECK(run("/bin/placement", "exec-placed", 0) == 1);
    CHECK(run("/bin/placement", "exec-placed", 1000) == 1);
    /* An exec that changes the user clears. */
    CHECK(system("cp /bin/placement /tmp/setuid && chmod 4755 /tmp/setuid") == 0);
    CHECK(run("/tmp/setuid", "exec-placed", 0) == 1);
    CHECK(run("/tmp/setuid", "exec-placed", 1000) == 0);
    write_file("/proc/sys/vm/page_hints_exec", "0");
    CHECK(run("/bin/placement", "exec-placed", 0) == 0);
}

static void test_exact(void)
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
    touch(memory, COUNT);
    for (int at = 0; at < COUNT; at++) same += frame_of(memory + at * PAGE) == wanted[at];
    counted = counters();
    CHECK(counted.unasked == COUNT / 4);
    /* One that fell back may get its frame all the same: freed last, it is first in its processor's list. */
    CHECK(counted.placed <= same && same - counted.placed <= counted.absent, "%u are there, %llu counted", same,
          counted.placed);
    CHECK(counted.placed + fallen(counted) == COUNT * 3 / 4);
    /* Somebody else may have been given one or another meanwhile. */
    CHECK(same >= COUNT * 3 / 4 - 8, "only %u", same);
    /* Frames that are in use, or are none, are not given. */
    uint64_t taken[] = {frame_of(memory), 0, 1UL << 40, (1UL << 63) - 1};
    volatile char *other = map(4);
    asked.values = (uintptr_t)taken;
    asked.value_count = 4;
    set(PAGE_HINTS_SET_RANGE, ranged(asked, other, 4));
    touch(other, 4);
    CHECK(frame_of(other) != taken[0]);
    CHECK(counters().absent - counted.absent >= 3);
}

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
static void test_remap(void)
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
    /* A frame in use is not given. */
    struct page_hint asked = hint("exact", 0);
    uint64_t taken = frame_of(memory);
    touch(other, 1);
    asked.values = (uintptr_t)&taken;
    asked.value_count = 1;
    set(PAGE_HINTS_SET_RANGE, ranged(asked, other, 1));
    moved = remap(other, 1, 0);
    CHECK(moved.failed == 1 && frame_of(memory) == taken);
    CHECK(held != NULL);
}

static void test_swap(void)
{
    volatile char *memory = map(256);
    unsigned char resident[256];
    int out = 0;
    set(PAGE_HINTS_SET_RANGE, ranged(hint("page-coloring", 64), memory, 256));
    touch(memory, 256);
    CHECK(madvise((void *)memory, 256 * PAGE, MADV_PAGEOUT) == 0);
    CHECK(mincore((void *)memory, 256 * PAGE, resident) == 0);
    for (int at = 0; at < 256; at++) out += !(resident[at] & 1);
    CHECK(out > 200, "%d are out", out);
    unsigned long before = counters().placed;
    for (int at = 0; at < 256; at++) CHECK(memory[at * PAGE] == (char)(at + 1));
    check_colors(memory, 256, 64);
    CHECK(counters().placed - before == (unsigned)out);
}

static void test_userfaultfd(void)
{
    enum { COUNT = 64 };
    volatile char *memory = map(COUNT);
    char *source = (char *)map(COUNT);
    struct uffdio_api api = {.api = UFFD_API};
    struct uffdio_register range = {.range = {(uintptr_t)memory, COUNT * PAGE}, .mode = UFFDIO_REGISTER_MODE_MISSING};
    struct uffdio_copy copy = {.dst = (uintptr_t)memory, .src = (uintptr_t)source, .len = COUNT * PAGE};
    int file = (int)syscall(SYS_userfaultfd, O_CLOEXEC);
    touch(source, COUNT);
    CHECK(file >= 0 && ioctl(file, UFFDIO_API, &api) == 0 && ioctl(file, UFFDIO_REGISTER, &range) == 0);
    set(PAGE_HINTS_SET_RANGE, ranged(hint("page-coloring", 64), memory, COUNT));
    CHECK(ioctl(file, UFFDIO_COPY, &copy) == 0);
    check_colors(memory, COUNT, 64);
    for (int at = 0; at < COUNT; at++) CHECK(memory[at * PAGE] == (char)(at + 1));
}

static void test_ksm(void)
{
    volatile char *memory = map(64);
    char text[32] = "0";
    set(PAGE_HINTS_SET_RANGE, ranged(hint("page-coloring", 16), memory, 64));
    for (int at = 0; at < 64; at++) memset((char *)memory + at * PAGE, 7, PAGE);
    CHECK(madvise((void *)memory, 64 * PAGE, MADV_MERGEABLE) == 0);
    write_file("/sys/kernel/mm/ksm/pages_to_scan", "10000");
    write_file("/sys/kernel/mm/ksm/run", "1");
    for (int round = 0; round < 300 && atoi(text) < 30; round++) {
        int file = open("/sys/kernel/mm/ksm/pages_sharing", O_RDONLY | O_CLOEXEC);
        ssize_t got = read(file, text, sizeof text - 1);
        close(file);
        text[got > 0 ? got : 0] = 0;
        usleep(50000);
    }
    CHECK(atoi(text) >= 30, "merged %s", text);
    write_file("/sys/kernel/mm/ksm/run", "0");
    /* Copies on write out of a merged page. */
    touch(memory, 64);
    check_colors(memory, 64, 16);
}

static int has_huge(const volatile void *address)
{
    char line[256];
    unsigned long start, end;
    int inside = 0, huge = 0, kb;
    FILE *file = fopen("/proc/self/smaps", "re");
    while (fgets(line, sizeof line, file)) {
        if (sscanf(line, "%lx-%lx ", &start, &end) == 2) inside = start <= (uintptr_t)address && (uintptr_t)address < end;
        if (inside && sscanf(line, "AnonHugePages: %d", &kb) == 1) huge = kb > 0;
    }
    fclose(file);
    return huge;
}

static void test_huge_pages(void)
{
    enum { COUNT = 2048 };
    for (int kept = 0; kept < 3; kept++)
        CHILD({
            volatile char *memory = map(COUNT);
            struct page_hint asked = hint("page-coloring", 16);
            madvise((void *)memory, COUNT * PAGE, MADV_HUGEPAGE);
            asked.flags = kept == 1 ? PAGE_HINT_THP : 0;
            if (kept < 2) set(PAGE_HINTS_SET_DEFAULT, asked);
            touch(memory, COUNT);
            CHECK(has_huge(memory) == (kept > 0), "case %d", kept);
            if (!kept) check_colors(memory, COUNT, 16);
        });
}

/* All memory is back but 2 MiB for the kernel's own caches; what is freed under RCU comes a moment later. */
static void check_free_again(long before)
{
    long after = free_pages_everywhere();
    for (int round = 0; round < 50 && after < before - 512; round++) {
        usleep(100000);
        after = free_pages_everywhere();
    }
    printf("%ld pages free before, %ld after\n", before, after);
    CHECK(after >= before - 512);
}

static long vmstat(const char *name)
{
    char line[256], word[128];
    long value = -1, read;
    FILE *file = fopen("/proc/vmstat", "re");
    while (fgets(line, sizeof line, file))
        if (sscanf(line, "%127s %ld", word, &read) == 2 && !strcmp(word, name)) value = read;
    fclose(file);
    return value;
}

/* All pages of one color of 64: beyond them others are given, and counted. */
static void test_exhaustion(void)
{
    long before = free_pages_everywhere();
    CHILD({
        size_t pages = (size_t)before / 16;
        volatile char *memory = map(pages);
        unsigned long color = 3;
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
        /* Nearly all that the nearer node had: half of the machine, 1 page of 64. */
        CHECK(counted.placed > (unsigned long)before / 128 * 8 / 10, "of %ld", before / 128);
    });
    usleep(200000);
    check_free_again(before);
}

static void test_memory_short(void)
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

static void test_memcg(void)
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

static int node_of(volatile void *page)
{
    void *pages[] = {(void *)page};
    int status[] = {-1};
    CHECK(syscall(SYS_move_pages, 0, 1, pages, NULL, status, 0) == 0);
    return status[0];
}

static void test_memory_policy(void)
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
static void test_compaction(void)
{
    enum { COUNT = 4096 };
    static uint64_t then[2][COUNT];
    const char *names[] = {"page-coloring", "bin-hopping"};
    volatile char *memory[2];
    long kept[2], moved[2];
    char *held = fragment((size_t)free_pages() / 2);
    for (int at = 0; at < 2; at++) {
        memory[at] = map(COUNT);
        set(PAGE_HINTS_SET_RANGE, ranged(hint(names[at], 16), memory[at], COUNT));
        touch(memory[at], COUNT);
        remember(memory[at], COUNT, then[at]);
        kept[at] = statistic(names[at], "kept");
        moved[at] = statistic(names[at], "moved");
    }
    CHECK(fallen(counters()) == 0);
    munmap(held, PAGE);
    for (int round = 0; round < 3; round++) write_file("/proc/sys/vm/compact_memory", "1");
    for (int at = 0; at < 2; at++) {
        size_t other = elsewhere(memory[at], COUNT, then[at]), without = lost(memory[at], COUNT, then[at], 16);
        kept[at] = statistic(names[at], "kept") - kept[at];
        moved[at] = statistic(names[at], "moved") - moved[at];
        printf("%s: %zu of %d pages have other frames, %zu other colors; %ld targets kept the color, %ld did not\n",
               names[at], other, COUNT, without, kept[at], moved[at]);
        CHECK(other > COUNT / 8 && kept[at] > 0);
        CHECK(without <= (size_t)moved[at]);
        CHECK(without < other / 50, "nearly all colors are there to be had");
        for (size_t page = 0; page < COUNT; page++) CHECK(memory[at][page * PAGE] == (char)(page + 1));
    }
}

/* Pages that are sent to the other node have their colors there; one that had to do without gets it. */
static void test_migration(void)
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

static void expect(int file, unsigned long number, const void *argument, int error, int line)
{
    int got = command(file, number, argument);
    CHECK(got == error, "line %d: %d instead of %d", line, got, error);
}
#define EXPECT(number, argument, error) expect(file, number, argument, error, __LINE__)

static void test_bad_input(void)
{
    int file = hints_of(0, O_RDWR), readable = hints_of(0, O_RDONLY);
    volatile char *memory = map(8);
    unsigned long dependent[] = {1, 1}, masks[17] = {1}, colors[] = {1};
    struct page_hint good = hint("page-coloring", 16), bad;
    struct page_hint_range range;
    munmap((void *)(memory + 4 * PAGE), PAGE);
#define BAD(error, ...)                                  \
    do {                                                 \
        bad = good;                                      \
        __VA_ARGS__;                                     \
        EXPECT(PAGE_HINTS_SET_DEFAULT, &bad, error);     \
    } while (0)
    BAD(0, );
    BAD(EINVAL, bad.size = 0);
    BAD(EINVAL, bad.size = sizeof bad - 8);
    BAD(E2BIG, bad.size = 1U << 31);
    BAD(EINVAL, bad.flags = 0x80000000);
    BAD(EINVAL, bad.flags = PAGE_HINT_FIRST);
    BAD(EINVAL, bad.first = 1);
    BAD(EINVAL, bad.seed = 1);
    BAD(EINVAL, bad.kinds = 0x10);
    BAD(EINVAL, bad.kinds = PAGE_HINT_HEAP; bad.flags = PAGE_HINT_DEMAND);
    bad = good;
    bad.kinds = PAGE_HINT_HEAP;
    EXPECT(PAGE_HINTS_SET_FILE, &bad, EINVAL);
    bad = ranged(bad, memory, 4);
    EXPECT(PAGE_HINTS_SET_RANGE, &bad, EINVAL);
    BAD(EINVAL, bad.start = PAGE);
    BAD(EINVAL, bad.length = PAGE);
    BAD(EINVAL, bad.colors = 0);
    BAD(EINVAL, bad.colors = 65537);
    BAD(EINVAL, bad.value_count = 1; bad.values = (uintptr_t)colors);
    BAD(EINVAL, memset(bad.strategy, 'x', sizeof bad.strategy));
    BAD(ENOENT, strcpy(bad.strategy, "no-such"));
    BAD(ENOENT, strcpy(bad.strategy, "../../x%s%n"));
    BAD(ENOENT, bad.strategy[0] = 0);
    BAD(EINVAL, strcpy(bad.strategy, "usual"));
    BAD(EINVAL, bad.mask_count = 17; bad.masks = (uintptr_t)masks);
    BAD(EINVAL, bad.mask_count = 2; bad.colors = 0; bad.masks = (uintptr_t)dependent);
    BAD(EINVAL, bad.mask_count = 1; bad.colors = 3; bad.masks = (uintptr_t)masks);
    BAD(EFAULT, bad.mask_count = 1; bad.colors = 0; bad.masks = 8);
    BAD(EFAULT, bad.mask_count = 1; bad.colors = 0; bad.masks = ~0UL - 4);
    BAD(EINVAL, bad = hint("modulo", 16));
    BAD(E2BIG, bad = hint("modulo", 16); bad.value_count = ~0UL; bad.values = (uintptr_t)colors);
    BAD(EFAULT, bad = hint("modulo", 16); bad.value_count = 1; bad.values = 8);
    BAD(EINVAL, bad = hint("exact", 0); bad.value_count = 1; bad.values = (uintptr_t)colors);
    EXPECT(PAGE_HINTS_SET_DEFAULT, NULL, EFAULT);
    EXPECT(PAGE_HINTS_SET_DEFAULT, (void *)-8UL, EFAULT);
#define RANGE(error, from, bytes)                        \
    do {                                                 \
        bad = good;                                      \
        bad.start = (uintptr_t)(from);                   \
        bad.length = (bytes);                            \
        EXPECT(PAGE_HINTS_SET_RANGE, &bad, error);       \
    } while (0)
    RANGE(0, memory, 4 * PAGE);
    RANGE(EINVAL, memory, 0);
    RANGE(EINVAL, memory + 1, PAGE);
    RANGE(EINVAL, memory, PAGE + 1);
    RANGE(ENOMEM, memory, 8 * PAGE);
    RANGE(ENOMEM, memory + 4 * PAGE, PAGE);
    RANGE(EINVAL, ~0UL - PAGE + 1, PAGE);
    RANGE(EINVAL, memory, ~0UL - PAGE + 1);
    RANGE(EINVAL, 0xffff800000000000UL, PAGE);
    bad = good;
    bad.colors = 65536;
    /* More colors than pages cannot be asked for, on a machine that small. */
    EXPECT(PAGE_HINTS_SET_DEFAULT, &bad, sysconf(_SC_PHYS_PAGES) < 65536 ? ERANGE : 0);
    range = (struct page_hint_range){(uintptr_t)memory + 1, PAGE};
    EXPECT(PAGE_HINTS_CLEAR, &range, EINVAL);
    range = (struct page_hint_range){0, ~0UL};
    EXPECT(PAGE_HINTS_CLEAR, &range, EINVAL);
    EXPECT(PAGE_HINTS_CLEAR, NULL, EFAULT);
    EXPECT(PAGE_HINTS_COUNTERS, NULL, EFAULT);
    EXPECT(PAGE_HINTS_GET, NULL, EFAULT);
    EXPECT(PAGE_HINTS_REMAP, NULL, EFAULT);
#define REMAP(error, ...)                                                     \
    do {                                                                      \
        struct page_hint_remap wrong = {.start = (uintptr_t)memory, .length = PAGE}; \
        __VA_ARGS__;                                                          \
        EXPECT(PAGE_HINTS_REMAP, &wrong, error);                              \
    } while (0)
    REMAP(0, );
    REMAP(EINVAL, wrong.flags = 1);
    REMAP(EINVAL, wrong.reserved = 1);
    REMAP(EINVAL, wrong.length = 0);
    REMAP(EINVAL, wrong.start++);
    REMAP(EINVAL, wrong.length = ~0UL - PAGE + 1);
    REMAP(ENOMEM, wrong.length = 8 * PAGE);
    expect(readable, PAGE_HINTS_REMAP, &range, EBADF, __LINE__);
    EXPECT(_IO(0xDC, 77), NULL, ENOTTY);
    EXPECT(TCGETS, NULL, ENOTTY);
    expect(readable, PAGE_HINTS_SET_DEFAULT, &good, EBADF, __LINE__);
    expect(readable, PAGE_HINTS_CLEAR, &range, EBADF, __LINE__);
    /* Ranges are bounded. */
    {
        volatile char *many = map(4096);
        int error = 0;
        unsigned made = 0;
        for (size_t at = 0; at < 4096 && !error; at += 2, made++) {
            bad = ranged(good, many + at * PAGE, 1);
            error = command(file, PAGE_HINTS_SET_RANGE, &bad);
        }
        CHECK(error == ENOSPC && made > 1000 && made < 1030, "%d after %u", error, made);
    }
}

/* Every ioctl with random bytes; nothing may be allowed, and the kernel must stay. */
static void fuzz(int file, int rounds, int may_succeed)
{
    unsigned long numbers[] = {PAGE_HINTS_SET_DEFAULT, PAGE_HINTS_SET_RANGE, PAGE_HINTS_CLEAR, PAGE_HINTS_GET,
                               PAGE_HINTS_COUNTERS, PAGE_HINTS_SET_FILE, PAGE_HINTS_GET_FILE, PAGE_HINTS_REMAP};
    const char *names[] = {"page-coloring", "bin-hopping", "modulo", "random", "exact", "usual", ""};
    volatile char *memory = map(64);
    unsigned long values[64];
    srandom((unsigned)getpid());
    for (int round = 0; round < rounds; round++) {
        unsigned long number = numbers[random() % 8];
        struct page_hint made = hint(names[random() % 7], (unsigned)random() % 70);
        unsigned char *bytes = (unsigned char *)&made;
        for (int at = 0; at < 64; at++) values[at] = (unsigned long)random() << (random() % 34);
        if (random() % 2) made = ranged(made, memory + random() % 64 * (long)PAGE, 1 + random() % 64);
        made.masks = made.values = (uintptr_t)values;
        made.mask_count = (unsigned)random() % 4 ? 0 : (unsigned)random() % 20;
        made.value_count = (unsigned)random() % 2 ? 0 : (unsigned)random() % 64;
        made.flags = (unsigned)random() % 16;
        for (int flips = (int)(random() % 4); flips > 0; flips--)
            bytes[random() % (long)sizeof made] = (unsigned char)random();
        struct page_hint_remap moved = {.flags = random() % 8 == 0};
        if (number == PAGE_HINTS_REMAP && random() % 4) {
            moved.start = (uintptr_t)memory + (unsigned long)random() % 64 * PAGE;
            moved.length = (1 + (unsigned long)random() % 8) * PAGE;
            memcpy(&made, &moved, sizeof moved);
        }
        void *argument = random() % 16 ? (void *)&made : (void *)(random() % 2 ? random() : -random());
        int error = command(file, number, argument);
        int sets = number == PAGE_HINTS_SET_DEFAULT || number == PAGE_HINTS_SET_RANGE || number == PAGE_HINTS_SET_FILE;
        CHECK(may_succeed || !sets || error != 0);
        memory[random() % 64 * (long)PAGE] = 1;
        if (random() % 64 == 0) madvise((void *)memory, 64 * PAGE, MADV_DONTNEED);
    }
}

static void test_attacker(void)
{
    CHILD({
        struct page_hint colors = hint("page-coloring", 16);
        volatile char *memory = map(1);
        int file;
        CHECK(setgid(1000) == 0 && setuid(1000) == 0);
        /* A process that changed its user is not dumpable: its files in /proc are root's. */
        CHECK(prctl(PR_SET_DUMPABLE, 1) == 0);
        CHECK(hints_of(1, O_RDONLY) < 0 && hints_of(1, O_RDWR) < 0);
        CHECK(hints_of(getppid(), O_RDONLY) < 0 && hints_of(getppid(), O_RDWR) < 0);
        file = hints_of(0, O_RDWR);
        CHECK(file >= 0);
        EXPECT(PAGE_HINTS_SET_DEFAULT, &colors, EPERM);
        colors = ranged(colors, memory, 1);
        EXPECT(PAGE_HINTS_SET_RANGE, &colors, EPERM);
        fuzz(file, 5000, 0);
    });
    write_file("/proc/sys/vm/page_hints_unprivileged", "1");
    CHILD({
        struct page_hint colors = hint("page-coloring", 16), exact = hint("exact", 0);
        unsigned long frame = 1000;
        volatile char *memory = map(1);
        int file;
        CHECK(setgid(1000) == 0 && setuid(1000) == 0 && prctl(PR_SET_DUMPABLE, 1) == 0);
        file = hints_of(0, O_RDWR);
        EXPECT(PAGE_HINTS_SET_DEFAULT, &colors, 0);
        exact.values = (uintptr_t)&frame;
        exact.value_count = 1;
        exact = ranged(exact, memory, 1);
        EXPECT(PAGE_HINTS_SET_RANGE, &exact, EPERM);
        struct page_hint_remap own = {.start = (uintptr_t)memory, .length = PAGE};
        EXPECT(PAGE_HINTS_REMAP, &own, 0);
        CHECK(hints_of(1, O_RDWR) < 0);
        fuzz(file, 5000, 1);
    });
    write_file("/proc/sys/vm/page_hints_unprivileged", "0");
    /* Root's file in a stranger's hands acts for root, as its opener meant it to. */
    CHILD({
        struct page_hint colors = hint("page-coloring", 16);
        int file = hints_of(0, O_RDWR);
        CHECK(setuid(1000) == 0);
        EXPECT(PAGE_HINTS_SET_DEFAULT, &colors, 0);
        fuzz(file, 5000, 1);
    });
}

static int unload(const char *module)
{
    return syscall(SYS_delete_module, module, O_NONBLOCK) == 0 ? 0 : errno;
}

static int load(const char *module)
{
    char path[64];
    int file, result;
    snprintf(path, sizeof path, "/modules/%s.ko", module);
    file = open(path, O_RDONLY | O_CLOEXEC);
    CHECK(file >= 0, "%s", path);
    result = syscall(SYS_finit_module, file, "", 0) == 0 ? 0 : errno;
    close(file);
    return result;
}

static void test_modules(void)
{
    struct page_hint asked = hint("random", 16);
    CHILD({
        int file = hints_of(0, O_RDWR);
        set(PAGE_HINTS_SET_DEFAULT, asked);
        touch(map(64), 64);
        CHECK(unload("placement_random") == EWOULDBLOCK);
        EXPECT(PAGE_HINTS_CLEAR, (&(struct page_hint_range){0, 0}), 0);
        usleep(100000);
        CHECK(unload("placement_random") == 0);
        EXPECT(PAGE_HINTS_SET_DEFAULT, &asked, ENOENT);
        CHECK(statistic("random", "placed") == -1);
    });
    CHECK(load("placement_random") == 0);
    CHECK(load("placement_random") == EEXIST);
    set(PAGE_HINTS_SET_DEFAULT, asked);
    CHECK(statistic("random", "placed") >= 0);
}

/* Two counts of the same: of all processes by strategy, and of this one. */
static void test_counts_add_up(void)
{
    long placed = statistic("page-coloring", "placed"), scanned = statistic("page-coloring", "scanned");
    volatile char *memory = map(1000);
    set(PAGE_HINTS_SET_RANGE, ranged(hint("page-coloring", 16), memory, 1000));
    touch(memory, 1000);
    CHECK(counters().placed == 1000 && fallen(counters()) == 0);
    CHECK(statistic("page-coloring", "placed") - placed == 1000);
    CHECK(statistic("page-coloring", "scanned") - scanned >= 1000);
    CHECK(statistic("page-coloring", "longest") <= 4096 * 2);
}

static volatile int stop;

static void *toucher(void *memory)
{
    while (!stop) {
        touch(memory, 256);
        madvise(memory, 256 * PAGE, MADV_DONTNEED);
    }
    return NULL;
}

/* Threads that fault and one that changes the hints under them. */
static void worker(int seed)
{
    pthread_t threads[2];
    const char *names[] = {"page-coloring", "bin-hopping", "random"};
    volatile char *memory = map(256);
    int file = hints_of(0, O_RDWR);
    time_t end = time(NULL) + 20;
    srandom((unsigned)seed);
    for (int at = 0; at < 2; at++) pthread_create(&threads[at], NULL, toucher, (void *)memory);
    while (time(NULL) < end) {
        struct page_hint made = hint(names[random() % 3], 1 + (unsigned)random() % 64);
        struct page_hint_range all = {0, 0};
        size_t from = (size_t)random() % 256;
        if (random() % 8 == 0)
            CHECK(!command(file, PAGE_HINTS_CLEAR, &all));
        else if (random() % 4 == 0)
            command(file, PAGE_HINTS_SET_DEFAULT, &made);
        else {
            made = ranged(made, memory + from * PAGE, 1 + (size_t)random() % (256 - from));
            command(file, PAGE_HINTS_SET_RANGE, &made);
        }
        if (random() % 8 == 0) {
            int child = fork(), status;
            if (!child) {
                touch(memory, 256);
                _exit(0);
            }
            CHECK(waitpid(child, &status, 0) == child && status == 0, "%x", (unsigned)status);
        }
    }
    stop = 1;
    for (int at = 0; at < 2; at++) pthread_join(threads[at], NULL);
}

static void test_stress(void)
{
    int children[4], status, removed = 0;
    time_t end;
    long before = free_pages_everywhere();
    for (int at = 0; at < 4; at++) {
        children[at] = fork();
        if (!children[at]) {
            worker(at);
            _exit(0);
        }
    }
    for (end = time(NULL) + 20; time(NULL) < end; usleep(20000))
        if (unload("placement_random") == 0) {
            removed++;
            CHECK(load("placement_random") == 0);
        }
    for (int at = 0; at < 4; at++)
        CHECK(waitpid(children[at], &status, 0) == children[at] && status == 0, "%x", (unsigned)status);
    printf("the module went and came %d times\n", removed);
    check_free_again(before);
}

/* Free pages by the lists and by the counters, zone by zone, while nothing runs. */
static void test_free_pages_add_up(void)
{
    for (int attempt = 0;; attempt++) {
        long listed = 0, counted;
        char line[512];
        FILE *file;
        counted = free_pages();
        file = fopen("/proc/buddyinfo", "re");
        while (fgets(line, sizeof line, file)) {
            char *at = strstr(line, "zone");
            int order = 0;
            strtok(at, " ");
            strtok(NULL, " ");
            for (char *word; (word = strtok(NULL, " \n")) != NULL; order++) listed += atol(word) << order;
        }
        fclose(file);
        if (listed == counted && counted == free_pages()) return;
        CHECK(attempt < 50, "%ld on the lists, %ld counted", listed, counted);
        usleep(20000);
    }
}

/* Booted with page_color=1024,16: bins of 16 colors for everybody, each process its own. */
static void test_boot_default(void)
{
    for (int round = 0; round < 4; round++)
        CHILD({
            volatile char *memory = map(64);
            struct page_hint asked = {.size = sizeof asked, .start = (uintptr_t)memory};
            int file = hints_of(0, O_RDWR), first;
            touch(memory, 64);
            CHECK(!command(file, PAGE_HINTS_GET, &asked) && !strcmp(asked.strategy, "bin-hopping"));
            CHECK(asked.colors == 16);
            first = (int)(frame_of(memory) % 16);
            for (int at = 0; at < 64; at++) CHECK((int)(frame_of(memory + at * PAGE) % 16) == (first + at) % 16);
            EXPECT(PAGE_HINTS_CLEAR, (&(struct page_hint_range){0, 0}), 0);
            unsigned long before = counters().placed;
            touch(map(64), 64);
            CHECK(counters().placed == before);
        });
    CHECK(statistic("bin-hopping", "placed") > 256);
}

/* A page of a file on a disk, touched alone: how many are resident, and how many mapped, after it. */
static void resident_after_touch(int *resident, int *mapped)
{
    unsigned char pages[256];
    uint64_t entries[256];
    int file = open("/mnt/file", O_RDONLY | O_CLOEXEC), pagemap = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
    volatile char *memory;
    sync();
    write_file("/proc/sys/vm/drop_caches", "3");
    memory = mmap(NULL, 256 * PAGE, PROT_READ, MAP_PRIVATE, file, 0);
    CHECK(memory != MAP_FAILED && memory[128 * PAGE] == 'x');
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

static void test_prepaging(void)
{
    int resident, mapped;
    resident_after_touch(&resident, &mapped);
    CHECK(resident > 1 && mapped > 1, "%d resident, %d mapped", resident, mapped);
    write_file("/proc/sys/vm/disable_prepaging", "1");
    resident_after_touch(&resident, &mapped);
    CHECK(resident == 1 && mapped > 1, "%d resident, %d mapped", resident, mapped);
    write_file("/proc/sys/vm/disable_prepaging", "2");
    resident_after_touch(&resident, &mapped);
    CHECK(resident == 1 && mapped == 1, "%d resident, %d mapped", resident, mapped);
    write_file("/proc/sys/vm/disable_prepaging", "0");
}

static void test_demand(void)
{
    struct page_hint asked = hint("usual", 0);
    int resident, mapped;
    asked.flags = PAGE_HINT_DEMAND;
    CHILD({
        volatile char *memory = map(2048);
        set(PAGE_HINTS_SET_DEFAULT, asked);
        resident_after_touch(&resident, &mapped);
        CHECK(resident == 1 && mapped == 1, "%d resident, %d mapped", resident, mapped);
        /* It places nothing, and huge pages stay. */
        madvise((void *)memory, 2048 * PAGE, MADV_HUGEPAGE);
        touch(memory, 2048);
        CHECK(has_huge(memory) && counters().placed == 0 && fallen(counters()) == 0);
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

static void test_file(void)
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
    CHECK(mkdir("/tmp/huge", 0755) == 0 && mount("none", "/tmp/huge", "tmpfs", 0, "huge=always") == 0);
    {
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

/*
 * What paths of the kernel cost, in instructions: under QEMU's -icount the time stamp counter counts them. Least of
 * seven rounds, lest interrupts count.
 */
enum { COST_PAGES = 1024 };

static void cost_fault(void)
{
    volatile char *memory = map(COST_PAGES);
    madvise((void *)memory, COST_PAGES * PAGE, MADV_NOHUGEPAGE);
    touch(memory, COST_PAGES);
    munmap((void *)memory, COST_PAGES * PAGE);
}

static void cost_fork(void)
{
    for (int round = 0; round < 16; round++) {
        int status, child = fork();
        if (!child) _exit(0);
        CHECK(waitpid(child, &status, 0) == child && status == 0);
    }
}

static void cost_file(void)
{
    static char page[PAGE];
    int file = open("/tmp/cost", O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    for (int at = 0; at < COST_PAGES; at++) CHECK(write(file, page, PAGE) == (ssize_t)PAGE);
    close(file);
    unlink("/tmp/cost");
}

static void cost_read(void)
{
    static char page[PAGE];
    int file = open("/tmp/read", O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (lseek(file, 0, SEEK_END) == 0)
        for (int at = 0; at < COST_PAGES; at++) CHECK(write(file, page, PAGE) == (ssize_t)PAGE);
    for (int at = 0; at < COST_PAGES; at++) CHECK(pread(file, page, PAGE, at * (long)PAGE) == (ssize_t)PAGE);
    close(file);
}

static void cost(const char *name, void (*path)(void), unsigned per)
{
    unsigned long least = ~0UL;
    for (int round = 0; round < 7; round++) {
        unsigned long before = __builtin_ia32_rdtsc(), taken;
        path();
        taken = __builtin_ia32_rdtsc() - before;
        if (taken < least) least = taken;
    }
    printf("cost %s %lu\n", name, least / per);
}

static void test_cost(void)
{
    cost("fault", cost_fault, COST_PAGES);
    cost("fork", cost_fork, 16);
    cost("file-write", cost_file, COST_PAGES);
    cost("file-read", cost_read, COST_PAGES);
    /* The same where free memory is single pages in no order. */
    char *held = fragment((size_t)free_pages() * 3 / 4);
    cost("fault-fragmented", cost_fault, COST_PAGES);
    cost("fork-fragmented", cost_fork, 16);
    CHECK(held != NULL);
}

static void test_cost_hints(void)
{
    set(PAGE_HINTS_SET_DEFAULT, hint("page-coloring", 16));
    set(PAGE_HINTS_SET_FILE, hint("page-coloring", 16));
    test_cost();
    CHECK(counters().placed > COST_PAGES);
}

/* A kernel without the series, or with nothing asked of it. */
static void test_stock(void)
{
    CHECK(hints_of(0, O_RDONLY) < 0 && errno == ENOENT);
    CHECK(access("/proc/page_color", F_OK) < 0);
    test_free_pages_add_up();
}

static const struct {
    const char *name;
    void (*run)(void);
} tests[] = {
    {"colors", test_colors},
    {"vectors", test_vectors},
    {"vectors-fragmented", test_vectors_fragmented},
    {"hash", test_hash},
    {"default-and-ranges", test_default_and_ranges},
    {"kinds", test_kinds},
    {"per-process", test_per_process},
    {"other-process", test_other_process},
    {"fork", test_fork},
    {"private-file", test_private_file},
    {"exec", test_exec},
    {"exact", test_exact},
    {"remap", test_remap},
    {"swap", test_swap},
    {"userfaultfd", test_userfaultfd},
    {"ksm", test_ksm},
    {"huge-pages", test_huge_pages},
    {"exhaustion", test_exhaustion},
    {"memory-short", test_memory_short},
    {"memcg", test_memcg},
    {"memory-policy", test_memory_policy},
    {"compaction", test_compaction},
    {"migration", test_migration},
    {"bad-input", test_bad_input},
    {"attacker", test_attacker},
    {"modules", test_modules},
    {"counts-add-up", test_counts_add_up},
    {"stress", test_stress},
    {"free-pages-at-first", test_free_pages_add_up},
    {"free-pages-at-last", test_free_pages_add_up},
    {"boot-default", test_boot_default},
    {"prepaging", test_prepaging},
    {"demand", test_demand},
    {"file", test_file},
    {"stock", test_stock},
    {"cost", test_cost},
    {"cost-hints", test_cost_hints},
};

int main(int count, char **words)
{
    if (count == 2 && !strcmp(words[1], "exec-placed")) return exec_placed();
    for (size_t at = 0; count == 2 && at < sizeof tests / sizeof *tests; at++) {
        if (strcmp(words[1], tests[at].name)) continue;
        tests[at].run();
        puts("ok");
        return 0;
    }
    fprintf(stderr, "%s: no such test\n", words[0]);
    return 2;
}

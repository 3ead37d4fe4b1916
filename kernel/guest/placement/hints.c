/* Hints: defaults, ranges, kinds of memory, other processes, fork, exec, the boot parameter. */
#include "tests.h"

void test_default_and_ranges(void)
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

void test_kinds(void)
{
    const unsigned every[] = {PAGE_HINT_HEAP, PAGE_HINT_ANON, PAGE_HINT_DATA, PAGE_HINT_STACK,
                              PAGE_HINT_HEAP | PAGE_HINT_STACK, PAGE_HINT_ANON | PAGE_HINT_DATA};
    for (size_t at = 0; at < sizeof every / sizeof *every; at++) CHILD(touch_kinds(every[at]));
}

void test_per_process(void)
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

void test_other_process(void)
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

void test_fork(void)
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

/* In an image started by exec: how many pages of 64 fresh ones were placed. */
int exec_placed(void)
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

void test_exec(void)
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

/* Booted with page_color=1024,16: bins of 16 colors for everybody, each process its own. */
void test_boot_default(void)
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

/* Hints: defaults, ranges, kinds of memory, other processes, fork, exec, the boot parameter. */
#include "tests.h"

#include <pthread.h>
#include <signal.h>

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

static volatile char *aligned(volatile char *memory)
{
    return (volatile char *)(((uintptr_t)memory + PAGE - 1) & ~(PAGE - 1));
}

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
    touch_kind(aligned(deep), KIND_PAGES, is_hinted);
}

static void touch_kinds(unsigned kinds)
{
    struct page_hint of = hint("page-coloring", 16), asked = {.size = sizeof asked, .kinds = kinds & -kinds};
    int file = hints_of(0, O_RDWR | O_CLOEXEC);
    volatile char *heap;
    of.kinds = kinds;
    set(PAGE_HINTS_SET_DEFAULT, of);
    CHECK(!command(file, PAGE_HINTS_GET, &asked) && asked.kinds == kinds);
    close(file);
    heap = sbrk((KIND_PAGES + 1) * PAGE);
    touch_kind(aligned(heap), KIND_PAGES, kinds & PAGE_HINT_HEAP);
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

static struct page_hint_counters kind_counters(unsigned kinds)
{
    struct page_hint_kind_counters counted = {.kinds = kinds};
    int file = hints_of(0, O_RDONLY | O_CLOEXEC);
    CHECK(!command(file, PAGE_HINTS_KIND_COUNTERS, &counted));
    close(file);
    return counted.counters;
}

static void set_kinds(unsigned kinds, struct page_hint of)
{
    of.kinds = kinds;
    set(PAGE_HINTS_SET_DEFAULT, of);
}

/* A strategy of its own for each kind of memory: colors by the address, but bins for the heap. */
static void set_each(void)
{
    set_kinds(PAGE_HINT_HEAP, hint("bin-hopping", 16));
    set_kinds(PAGE_HINT_ANON, hint("page-coloring", 32));
    set_kinds(PAGE_HINT_DATA, hint("page-coloring", 12));
    set_kinds(PAGE_HINT_STACK, hint("page-coloring", 7));
    set(PAGE_HINTS_SET_FILE, hint("page-coloring", 64));
}

/* Pages have one color after another, in the order in which they are touched. */
static void check_bins(volatile char *memory, size_t pages, unsigned colors)
{
    for (size_t at = 1; at < pages; at++)
        CHECK(frame_of(memory + at * PAGE) % colors == (frame_of(memory + (at - 1) * PAGE) + 1) % colors, "page %zu", at);
}

static __attribute__((noinline)) void check_each_stack(void)
{
    volatile char deep[(KIND_PAGES + 2) * PAGE];
    touch(aligned(deep), KIND_PAGES);
    check_colors(aligned(deep), KIND_PAGES, 7);
}

/* Touches all kinds of memory: each lies as its strategy wants it, and is counted by itself. */
static void check_each(void)
{
    const unsigned kinds[] = {PAGE_HINT_HEAP, PAGE_HINT_ANON, PAGE_HINT_DATA, PAGE_HINT_STACK, PAGE_HINT_FILE};
    volatile char *heap = aligned(sbrk((KIND_PAGES + 1) * PAGE)), *anonymous = map(KIND_PAGES);
    volatile char *shared = mmap(NULL, KIND_PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    unsigned long all = 0;
    touch(heap, KIND_PAGES);
    touch(anonymous, KIND_PAGES);
    touch(kind_data, KIND_PAGES);
    touch(kind_bss, KIND_PAGES);
    touch(shared, KIND_PAGES);
    check_each_stack();
    check_bins(heap, KIND_PAGES, 16);
    check_colors(anonymous, KIND_PAGES, 32);
    check_colors(kind_data, KIND_PAGES, 12);
    check_colors(kind_bss, KIND_PAGES, 12);
    for (size_t at = 0; at < KIND_PAGES; at++) CHECK(frame_of(shared + at * PAGE) % 64 == at % 64, "page %zu", at);
    for (size_t at = 0; at < sizeof kinds / sizeof *kinds; at++) {
        struct page_hint_counters counted = kind_counters(kinds[at]);
        CHECK(counted.placed >= KIND_PAGES && counted.placed < 4 * KIND_PAGES && fallen(counted) == 0,
              "kind %x: %llu placed", kinds[at], counted.placed);
        all += counted.placed;
    }
    CHECK(all == kind_counters(0).placed && all == counters().placed);
    CHECK(kind_counters(PAGE_HINT_HEAP | PAGE_HINT_FILE).placed ==
          kind_counters(PAGE_HINT_HEAP).placed + kind_counters(PAGE_HINT_FILE).placed);
}

/* The images that exec starts: what lies where, and how many kinds have a hint. */
int exec_defaults(void)
{
    check_each();
    return 0;
}

int exec_hinted(void)
{
    int file = hints_of(0, O_RDONLY | O_CLOEXEC), hinted = 0;
    struct page_hint asked = {.size = sizeof asked};
    for (unsigned kind = PAGE_HINT_HEAP; kind <= PAGE_HINT_STACK; kind <<= 1) {
        asked = (struct page_hint){.size = sizeof asked, .kinds = kind};
        hinted += command(file, PAGE_HINTS_GET, &asked) == 0;
    }
    asked = (struct page_hint){.size = sizeof asked};
    return hinted + (command(file, PAGE_HINTS_GET_FILE, &asked) == 0);
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

/* The colors of the default of a kind, and the kinds that share it; 0 without one. */
static unsigned colors_for(unsigned kind, unsigned *kinds)
{
    struct page_hint asked = {.size = sizeof asked, .kinds = kind};
    int file = hints_of(0, O_RDONLY | O_CLOEXEC), error = command(file, PAGE_HINTS_GET, &asked);
    CHECK(error == 0 || error == ENOENT);
    close(file);
    *kinds = asked.kinds;
    return error ? 0 : asked.colors;
}

/* Defaults replace each other kind by kind. */
static void check_replacement(void)
{
    unsigned kinds;
    set(PAGE_HINTS_SET_DEFAULT, hint("page-coloring", 16));
    CHECK(colors_for(PAGE_HINT_DATA, &kinds) == 16 && kinds == 0);
    set_kinds(PAGE_HINT_HEAP | PAGE_HINT_STACK, hint("bin-hopping", 8));
    CHECK(colors_for(PAGE_HINT_STACK, &kinds) == 8 && kinds == (PAGE_HINT_HEAP | PAGE_HINT_STACK));
    CHECK(colors_for(PAGE_HINT_ANON, &kinds) == 16 && kinds == (PAGE_HINT_ANON | PAGE_HINT_DATA));
    set_kinds(PAGE_HINT_STACK, hint("usual", 0));
    CHECK(colors_for(PAGE_HINT_HEAP, &kinds) == 8 && kinds == PAGE_HINT_HEAP);
    CHECK(colors_for(PAGE_HINT_STACK, &kinds) == 0 && kinds == PAGE_HINT_STACK);
    set(PAGE_HINTS_SET_DEFAULT, hint("page-coloring", 4));
    CHECK(colors_for(PAGE_HINT_STACK, &kinds) == 4 && kinds == 0);
}

/* Pages of two kinds that are touched by turns have one color after another. */
static void check_alternate(volatile char *one, volatile char *other)
{
    for (size_t at = 0; at < 8; at++) {
        touch(one + at * PAGE, 1);
        touch(other + at * PAGE, 1);
    }
    for (size_t at = 0; at < 8; at++)
        CHECK((frame_of(one + at * PAGE) + 1) % 64 == frame_of(other + at * PAGE) % 64, "page %zu", at);
}

/* Kinds that were hinted together share a sequence, and so do their copies in a child. */
static void check_shared_sequence(void)
{
    struct page_hint hopping = hint("bin-hopping", 64);
    volatile char *heap = aligned(sbrk(17 * PAGE)), *anonymous = map(16);
    hopping.flags = PAGE_HINT_FIRST;
    set_kinds(PAGE_HINT_HEAP | PAGE_HINT_ANON, hopping);
    check_alternate(heap, anonymous);
    CHILD(check_alternate(heap + 8 * PAGE, anonymous + 8 * PAGE));
}

void test_defaults(void)
{
    char text[4096] = "";
    CHILD(check_replacement());
    CHILD(check_shared_sequence());
    CHILD(set_each(); check_each());
    /* A child has all of them; so has the image that it executes, if the sysctl says so. */
    set_each();
    CHECK(pread(hints_of(0, O_RDONLY), text, sizeof text - 1, 0) > 0);
    CHECK(strstr(text, "default bin-hopping colors 16 seed 0 for heap\n") && strstr(text, "colors 12 for data\n"));
    CHECK(strstr(text, "file page-coloring colors 64\n"), "%s", text);
    CHILD(check_each());
    CHECK(run("/bin/placement", "exec-hinted", 0) == 0);
    write_file("/proc/sys/vm/page_hints_exec", "1");
    CHECK(run("/bin/placement", "exec-hinted", 0) == 5);
    CHECK(run("/bin/placement", "exec-defaults", 0) == 0);
    CHECK(run("/bin/placement", "exec-hinted", 1000) == 5);
    CHECK(system("cp /bin/placement /tmp/setuid && chmod 4755 /tmp/setuid") == 0);
    CHECK(run("/tmp/setuid", "exec-hinted", 0) == 5);
    CHECK(run("/tmp/setuid", "exec-hinted", 1000) == 0);
    write_file("/proc/sys/vm/page_hints_exec", "0");
}

/* A program whose heap lies below its bss. */
void test_static_pie(void)
{
    CHECK(run("/bin/placement-pie", "kinds", 0) == 0);
    set_each();
    write_file("/proc/sys/vm/page_hints_exec", "1");
    CHECK(run("/bin/placement-pie", "exec-defaults", 0) == 0);
    write_file("/proc/sys/vm/page_hints_exec", "0");
}

static volatile int replaced_enough;

static void *replacer(void *unused)
{
    struct page_hint of = hint("page-coloring", 16);
    int file = hints_of(0, O_RDWR | O_CLOEXEC);
    while (!replaced_enough) CHECK(!command(file, PAGE_HINTS_SET_DEFAULT, &of));
    close(file);
    return unused;
}

/* A hint that another thread replaces by the same holds all the time: each page is asked for. */
void test_replaced(void)
{
    enum { ROUNDS = 2000, COUNT = 64 };
    volatile char *memory = map(COUNT);
    struct page_hint_counters before;
    unsigned long asked;
    pthread_t thread;
    madvise((void *)memory, COUNT * PAGE, MADV_NOHUGEPAGE);
    set(PAGE_HINTS_SET_DEFAULT, hint("page-coloring", 16));
    before = counters();
    CHECK(pthread_create(&thread, NULL, replacer, NULL) == 0);
    for (int round = 0; round < ROUNDS; round++) {
        touch(memory, COUNT);
        madvise((void *)memory, COUNT * PAGE, MADV_DONTNEED);
    }
    replaced_enough = 1;
    pthread_join(thread, NULL);
    asked = counters().placed + fallen(counters()) - before.placed - fallen(before);
    printf("%lu of %d pages were asked for\n", asked, ROUNDS * COUNT);
    CHECK(asked >= ROUNDS * COUNT);
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

/* Holds so many references on a page that the kernel takes it for one that a device writes to. */
static void hold_for_device(volatile char *page)
{
    enum { PIPES = 5, SLOTS = 256 };
    struct iovec piece[SLOTS];
    int file = open("/mnt/file", O_RDONLY | O_DIRECT | O_CLOEXEC), pipes[2];
    /* From then on the kernel asks for pages like that one in this process. */
    CHECK(file >= 0 && read(file, (void *)page, PAGE) == (ssize_t)PAGE);
    close(file);
    for (int at = 0; at < SLOTS; at++) piece[at] = (struct iovec){(void *)page, 1};
    for (int at = 0; at < PIPES; at++) {
        CHECK(pipe2(pipes, O_CLOEXEC) == 0 && fcntl(pipes[1], F_SETPIPE_SZ, SLOTS * PAGE) == SLOTS * (int)PAGE);
        CHECK(vmsplice(pipes[1], piece, SLOTS, SPLICE_F_NONBLOCK) == SLOTS);
    }
}

/* fork() copies such a page at once: by the child's hints, and for the child's counts. */
void test_fork_pinned(void)
{
    volatile char *bins = map(64);
    struct page_hint hopping = hint("bin-hopping", 16);
    unsigned long placed;
    uint64_t frame;
    hopping.flags = PAGE_HINT_FIRST;
    set(PAGE_HINTS_SET_RANGE, ranged(hopping, bins, 64));
    touch(bins, 10);
    hold_for_device(bins);
    placed = counters().placed;
    frame = frame_of(bins);
    CHECK(placed == 10 && frame % 16 == 0);
    CHILD({
        CHECK(frame_of(bins) != frame && frame_of(bins) % 16 == 10, "frame %lx after %lx", frame_of(bins), frame);
        CHECK(counters().placed == 1 && fallen(counters()) == 0, "%llu placed", counters().placed);
        touch(bins + 10 * PAGE, 1);
        CHECK(frame_of(bins + 10 * PAGE) % 16 == 11);
    });
    CHECK(counters().placed == placed && frame_of(bins) == frame, "%llu placed", counters().placed);
    touch(bins + 10 * PAGE, 1);
    CHECK(frame_of(bins + 10 * PAGE) % 16 == 10);
}

/* In an image started by exec: how many pages of 64 fresh ones were placed. */
int exec_placed(void)
{
    touch(map(64), 64);
    return counters().placed >= 64 ? 1 : 0;
}

/* In an image started by exec: until it is killed. */
int exec_waits(void)
{
    puts("begun");
    fflush(stdout);
    pause();
    return 0;
}

/* Whether an image that another user executes has a default hint; root looks, as the user must not. */
static int has_default_after(const char *path)
{
    char text[4096] = "", byte;
    int from[2], child, status, file;
    CHECK(pipe(from) == 0);
    child = fork();
    if (!child) {
        CHECK(dup2(from[1], 1) == 1 && setuid(1000) == 0);
        execl(path, path, "exec-waits", NULL);
        _exit(99);
    }
    CHECK(read(from[0], &byte, 1) == 1);
    file = hints_of(child, O_RDONLY | O_CLOEXEC);
    CHECK(file >= 0 && read(file, text, sizeof text - 1) >= 0);
    close(file);
    close(from[0]);
    close(from[1]);
    CHECK(kill(child, SIGKILL) == 0 && waitpid(child, &status, 0) == child);
    return strstr(text, "default ") != NULL;
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
    /* So does one of a file that the user must not read, and one that gives capabilities back. */
    CHECK(system("cp /bin/placement /tmp/unreadable && chmod 0711 /tmp/unreadable") == 0);
    CHECK(has_default_after("/bin/placement") == 1);
    CHECK(has_default_after("/tmp/unreadable") == 0);
    CHILD({
        struct {
            unsigned version;
            int pid;
        } header = {0x20080522, 0};
        unsigned none[6] = {0};
        CHECK(syscall(SYS_capset, &header, none) == 0);
        CHECK(run("/bin/placement", "exec-placed", 0) == 0);
    });
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
            /* A child has no hints either, nor has its own: the boot parameter does not come back. */
            CHILD({
                touch(map(64), 64);
                CHECK(counters().placed == 0 && command(hints_of(0, O_RDONLY), PAGE_HINTS_GET, &asked) == ENOENT);
                CHILD({
                    touch(map(64), 64);
                    CHECK(counters().placed == 0);
                });
            });
        });
    CHECK(statistic("bin-hopping", "placed") > 256);
    /* Nor does it with an exec that keeps what there is. */
    write_file("/proc/sys/vm/page_hints_exec", "1");
    CHECK(run("/bin/placement", "exec-hinted", 0) == 5);
    CHILD({
        int file = hints_of(0, O_RDWR | O_CLOEXEC);
        EXPECT(PAGE_HINTS_CLEAR, (&(struct page_hint_range){0, 0}), 0);
        CHECK(run("/bin/placement", "exec-hinted", 0) == 0);
        /* What has been set since is kept alone. */
        set(PAGE_HINTS_SET_FILE, hint("bin-hopping", 8));
        CHECK(run("/bin/placement", "exec-hinted", 0) == 1);
    });
    write_file("/proc/sys/vm/page_hints_exec", "0");
}

/* What both backends promise: the library's engine, and a kernel with page placement, which the library asks or, without
 * the library, pagelab_kernel.c.
 *
 *     both [library | kernel]    that one answers
 *     both policy                the kernel answers, under a policy of page colouring with 16 colours
 *     both rule                  the same, for the heap alone
 *     both machine               the kernel answers, and its settings and modules may be changed
 *     both without               pagelab_kernel.c on a kernel without page placement
 */
#include "api.h"
#include <sys/prctl.h>
#include <sys/syscall.h>

enum { PAGES = 300, THREADS = 4 };

static void touch(unsigned char *p, size_t pages) {
    for (size_t i = 0; i < pages; i++) p[i * PAGE] = (unsigned char)(i + 1);
}

static void check_contents(const unsigned char *p, size_t pages) {
    for (size_t i = 0; i < pages; i++) CHECK(p[i * PAGE] == (unsigned char)(i + 1));
}

/* With the kernel a hint outlives the mapping. */
static void give_back(unsigned char *p, size_t pages) {
    CHECK_API(pagelab_clear_range(p, pages * PAGE), 0);
    CHECK(munmap(p, pages * PAGE) == 0);
}

/* Pages of the range get their colours; those beside it stay where they are, and have no hint. */
static void only_the_range(void) {
    unsigned char *p = map_anon((PAGES + 2) * PAGE), *range = p + PAGE, *behind = range + PAGES * PAGE;
    int before = pagelab_strategy_at(p);
    struct pagelab_hint hint = hint_of(PAGELAB_PAGE_COLORING, 24);
    *p = *behind = 7;
    uint64_t frames[] = {frame_of(p), frame_of(behind)};
    CHECK_API(pagelab_set_range(range + 5, PAGES * PAGE - 10, &hint), 0); /* bytes of the first and of the last page */
    touch(range, PAGES);
    CHECK_COLORED(range, PAGES, 24);
    check_queries(range, PAGES, 24);
    CHECK_API(pagelab_remap_range(range, PAGES * PAGE, NULL), 0);
    CHECK_API(pagelab_strategy_at(range), PAGELAB_PAGE_COLORING);
    CHECK_API(pagelab_strategy_at(behind - 1), PAGELAB_PAGE_COLORING);
    CHECK_API(pagelab_strategy_at(p), before);
    CHECK_API(pagelab_strategy_at(behind), before);
    CHECK(frame_of(p) == frames[0] && frame_of(behind) == frames[1]);
    CHECK(*p == 7 && *behind == 7);
    check_contents(range, PAGES);
    give_back(p, PAGES + 2);
}

/* As many colours as the cache has, where nobody says otherwise: they are told. */
static void usual_colors(void) {
    unsigned char *p = map_anon(PAGES * PAGE);
    struct pagelab_hint hint = PAGELAB_HINT(PAGELAB_PAGE_COLORING);
    CHECK_API(pagelab_set_range(p, PAGES * PAGE, &hint), 0);
    int colors = pagelab_color_count(p);
    CHECK(colors > 0);
    touch(p, PAGES);
    CHECK_COLORED(p, PAGES, (uint64_t)colors);
    give_back(p, PAGES);
}

static void by_masks(void) {
    unsigned char *p = map_anon(PAGES * PAGE);
    uint64_t masks[] = {0x11, 0x22, 0x44};
    struct pagelab_hint hint = hint_of(PAGELAB_PAGE_COLORING, 0);
    hint.masks = masks;
    hint.mask_count = 3;
    CHECK_API(pagelab_set_range(p, PAGES * PAGE, &hint), 0);
    CHECK_API(pagelab_color_count(p), 8);
    touch(p, PAGES);
    for (size_t i = 0; i < PAGES; i++) {
        uint64_t frame = frame_of(p + i * PAGE), color = 0;
        for (int bit = 0; bit < 3; bit++) color |= (uint64_t)__builtin_parityll(frame & masks[bit]) << bit;
        CHECK(color == (vpn_of(p) + i) % 8);
    }
    uint32_t color;
    CHECK_API(pagelab_colors(p, 1, &color), pagelab_backend() == PAGELAB_BY_KERNEL ? -EOPNOTSUPP : 0);
    give_back(p, PAGES);
}

static void in_order(uint32_t flags, uint64_t seed, uint64_t first) {
    unsigned char *p = map_anon(PAGES * PAGE);
    struct pagelab_hint hint = hint_of(PAGELAB_BIN_HOPPING, 10);
    hint.flags = flags;
    hint.seed = seed;
    hint.first = flags == 0 ? (uint32_t)first : 0;
    CHECK_API(pagelab_set_range(p, PAGES * PAGE, &hint), 0);
    for (size_t i = 0; i < PAGES; i++) {
        unsigned char *page = p + i * 211 % PAGES * PAGE;
        *page = 1;
        CHECK(frame_of(page) % 10 == (first + i) % 10);
    }
    give_back(p, PAGES);
}

static void by_values(void) {
    unsigned char *p = map_anon(PAGES * PAGE);
    uint64_t colors[] = {9, 9, PAGELAB_ANYWHERE, 0, 13, 1, 2};
    struct pagelab_hint hint = hint_of(PAGELAB_MODULO, 14);
    hint.values = colors;
    hint.value_count = 7;
    CHECK_API(pagelab_set_range(p + PAGE, (PAGES - 1) * PAGE, &hint), 0);
    memset(colors, 0, sizeof colors); /* they were copied */
    uint64_t wanted[] = {9, 9, PAGELAB_ANYWHERE, 0, 13, 1, 2};
    touch(p, PAGES);
    for (size_t i = 0; i < PAGES - 1; i++)
        CHECK(wanted[i % 7] == PAGELAB_ANYWHERE || frame_of(p + (i + 1) * PAGE) % 14 == wanted[i % 7]);
    give_back(p, PAGES);
}

static void drawn(void) {
    unsigned char *p = map_anon(PAGES * PAGE);
    struct pagelab_hint hint = hint_of(PAGELAB_RANDOM, 30);
    hint.seed = 99;
    CHECK_API(pagelab_set_range(p, PAGES * PAGE, &hint), 0);
    touch(p, PAGES);
    policy.colours = 30;
    for (size_t i = 0; i < PAGES; i++) CHECK(frame_of(p + i * PAGE) % 30 == mixed_colour(mixed(99) ^ (vpn_of(p) + i)));
    give_back(p, PAGES);
}

static void by_process(void) {
    unsigned char *p = map_anon(PAGES * PAGE);
    struct pagelab_hint hint = hint_of(PAGELAB_PAGE_COLORING, 30);
    hint.flags = PAGELAB_HASH_PID;
    CHECK_API(pagelab_set_range(p, PAGES * PAGE, &hint), 0);
    touch(p, PAGES);
    policy.colours = 30;
    uint64_t shift = mixed_colour((uint64_t)getpid());
    for (size_t i = 0; i < PAGES; i++) CHECK(frame_of(p + i * PAGE) % 30 == (vpn_of(p) + i + shift) % 30);
    give_back(p, PAGES);
}

/* Later hints replace earlier ones where they overlap, and a hint for nobody but the kernel is one. */
static void replaced(void) {
    unsigned char *p = map_anon(90 * PAGE);
    int before = pagelab_strategy_at(p);
    struct pagelab_hint a = hint_of(PAGELAB_PAGE_COLORING, 6), b = hint_of(PAGELAB_RANDOM, 6);
    struct pagelab_hint kernel = PAGELAB_HINT(PAGELAB_KERNEL);
    CHECK_API(pagelab_set_range(p, 90 * PAGE, &a), 0);
    CHECK_API(pagelab_set_range(p + 30 * PAGE, 30 * PAGE, &b), 0);
    CHECK_API(pagelab_set_range(p + 70 * PAGE, 10 * PAGE, &kernel), 0);
    for (size_t i = 0; i < 90; i++) {
        int kind = i < 30 ? PAGELAB_PAGE_COLORING : i < 60 ? PAGELAB_RANDOM : PAGELAB_PAGE_COLORING;
        if (i >= 70 && i < 80) kind = PAGELAB_KERNEL;
        CHECK_API(pagelab_strategy_at(p + i * PAGE), kind);
    }
    touch(p, 90);
    CHECK_COLORED(p, 30, 6);
    CHECK_COLORED(p + 60 * PAGE, 10, 6);
    CHECK_API(pagelab_clear_range(p, 90 * PAGE), 0);
    CHECK_API(pagelab_strategy_at(p + 50 * PAGE), before);
    check_contents(p, 90);
    CHECK(munmap(p, 90 * PAGE) == 0);
}

static void moved(void) {
    unsigned char *p = map_anon(PAGES * PAGE);
    CHECK(madvise(p, PAGES * PAGE, MADV_NOHUGEPAGE) == 0 || errno == EINVAL);
    struct pagelab_hint hint = hint_of(PAGELAB_PAGE_COLORING, 20);
    struct pagelab_moved result;
    touch(p, PAGES);
    CHECK(madvise(p + (PAGES - 10) * PAGE, 10 * PAGE, MADV_DONTNEED) == 0);
    CHECK_API(pagelab_set_range(p, PAGES * PAGE, &hint), 0);
    CHECK_API(pagelab_remap_range(p, PAGES * PAGE, &result), 0);
    CHECK(result.pages == PAGES && result.absent == 10);
    CHECK(result.in_place == PAGES - 10 && result.elsewhere == 0);
    CHECK_COLORED(p, PAGES - 10, 20);
    check_contents(p, PAGES - 10);
    give_back(p, PAGES);
}

/* Pages that a child still shares are copied, and then moved. */
static void moved_from_a_child(void) {
    unsigned char *p = map_anon(PAGES * PAGE);
    CHECK(madvise(p, PAGES * PAGE, MADV_NOHUGEPAGE) == 0 || errno == EINVAL);
    struct pagelab_hint hint = hint_of(PAGELAB_PAGE_COLORING, 20);
    struct pagelab_moved result;
    int ends[2];
    touch(p, PAGES);
    CHECK(pipe(ends) == 0);
    pid_t pid = fork();
    if (pid == 0) {
        char byte;
        close(ends[1]);
        CHECK(read(ends[0], &byte, 1) == 0); /* until the parent has moved its own */
        check_contents(p, PAGES);
        _exit(0);
    }
    CHECK_API(pagelab_set_range(p, PAGES * PAGE, &hint), 0);
    CHECK_API(pagelab_remap_range(p, PAGES * PAGE, &result), 0);
    close(ends[0]);
    close(ends[1]);
    CHECK(wait_for(pid) == 0);
    CHECK(result.in_place == PAGES);
    CHECK_COLORED(p, PAGES, 20);
    check_contents(p, PAGES);
    give_back(p, PAGES);
}

static void *in_a_thread(void *number) {
    struct pagelab_hint hint = hint_of(PAGELAB_PAGE_COLORING, 5 + (uint32_t)(uintptr_t)number);
    for (int round = 0; round < 5; round++) {
        unsigned char *p = map_anon(PAGES * PAGE);
        CHECK_API(pagelab_set_range(p, PAGES * PAGE, &hint), 0);
        touch(p, PAGES);
        CHECK_COLORED(p, PAGES, hint.colors);
        check_queries(p, PAGES, hint.colors);
        give_back(p, PAGES);
    }
    return NULL;
}

static void in_threads(void) {
    pthread_t threads[THREADS];
    for (uintptr_t i = 0; i < THREADS; i++) CHECK(pthread_create(&threads[i], NULL, in_a_thread, (void *)i) == 0);
    for (int i = 0; i < THREADS; i++) CHECK(pthread_join(threads[i], NULL) == 0);
}

/* A child keeps the hints; what it hints at is its own. */
static void in_a_child(void) {
    unsigned char *p = map_anon(PAGES * PAGE);
    struct pagelab_hint hint = hint_of(PAGELAB_PAGE_COLORING, 40);
    hint.fault_around = 1;
    CHECK_API(pagelab_set_range(p, PAGES * PAGE, &hint), 0);
    touch(p, 100);
    pid_t pid = fork();
    if (pid == 0) {
        CHECK_API(pagelab_strategy_at(p), PAGELAB_PAGE_COLORING);
        touch(p + 100 * PAGE, 100);
        CHECK_COLORED(p + 100 * PAGE, 100, 40);
        CHECK_API(pagelab_clear_range(p, PAGES * PAGE), 0);
        _exit(0);
    }
    CHECK(wait_for(pid) == 0);
    CHECK_API(pagelab_strategy_at(p), PAGELAB_PAGE_COLORING);
    touch(p + 200 * PAGE, 100);
    CHECK_COLORED(p + 200 * PAGE, 100, 40);
    give_back(p, PAGES);
}

/* A default of the program's own, where one can be had. */
static void by_default(void) {
    struct pagelab_hint hint = hint_of(PAGELAB_PAGE_COLORING, 18);
    unsigned char *before = map_anon(PAGES * PAGE);
    int strategy = pagelab_strategy_at(before), error = pagelab_set_default(&hint);
    if (error != 0) {
        CHECK(error == -EOPNOTSUPP && pagelab_backend() == PAGELAB_BY_LIBRARY);
        return;
    }
    unsigned char *p = map_anon(PAGES * PAGE);
    touch(p, PAGES);
    CHECK_COLORED(p, PAGES, 18);
    CHECK_API(pagelab_color_count(p), 18);
    CHECK_API(pagelab_set_default(NULL), 0);
    CHECK_API(pagelab_strategy_at(before), strategy);
    CHECK(munmap(p, PAGES * PAGE) == 0 && munmap(before, PAGES * PAGE) == 0);
}

static void refused(void) {
    unsigned char *p = map_anon(8 * PAGE);
    int before = pagelab_strategy_at(p);
    uint64_t values[] = {3, 16}, frames[8], nowhere = (uint64_t)1 << 39;
    uint32_t colors[8];
    struct pagelab_hint good = hint_of(PAGELAB_PAGE_COLORING, 16), bad[12];
    size_t n = 0;
    bad[n] = good, bad[n++].size = 12;
    bad[n++] = hint_of(6, 16);
    bad[n++] = hint_of(1000, 16);
    bad[n++] = hint_of(PAGELAB_RANDOM, 65537);
    bad[n] = good, bad[n++].flags = PAGELAB_DRAW_FIRST;
    bad[n] = good, bad[n++].first = 1;
    bad[n] = hint_of(PAGELAB_BIN_HOPPING, 16), bad[n++].first = 16;
    bad[n++] = hint_of(PAGELAB_MODULO, 16);
    bad[n] = hint_of(PAGELAB_MODULO, 16), bad[n].values = values, bad[n++].value_count = 2;
    bad[n] = hint_of(PAGELAB_RANDOM, 16), bad[n].values = values, bad[n++].value_count = 1;
    bad[n] = hint_of(PAGELAB_EXACT, 0), bad[n].values = &nowhere, bad[n++].value_count = 1;
    for (size_t i = 0; i < n; i++) CHECK_API(pagelab_set_range(p, PAGE, &bad[i]), -EINVAL);
    CHECK_API(pagelab_set_range(p, PAGE, NULL), -EINVAL);
    CHECK_API(pagelab_set_range(p, 0, &good), -EINVAL);
    CHECK_API(pagelab_set_range(p, SIZE_MAX, &good), -EINVAL);
    CHECK_API(pagelab_clear_range(p, 0), -EINVAL);
    CHECK_API(pagelab_remap_range(p, 0, NULL), -EINVAL);
    CHECK_API(pagelab_frames(p, 1, NULL), -EINVAL);
    CHECK_API(pagelab_colors(p, 1, NULL), -EINVAL);
    CHECK_API(pagelab_counters(NULL, 8), -EINVAL);
    CHECK_API(pagelab_frames(p, 0, frames), 0);
    CHECK(munmap(p + 4 * PAGE, PAGE) == 0);
    CHECK_API(pagelab_set_range(p, 8 * PAGE, &good), -EFAULT);
    CHECK_API(pagelab_remap_range(p, 8 * PAGE, NULL), -EFAULT);
    CHECK_API(pagelab_frames(p, 8, frames), -EFAULT);
    CHECK_API(pagelab_colors(p, 8, colors), -EFAULT);
    CHECK_API(pagelab_strategy_at(p), before);
    if (before == PAGELAB_KERNEL) CHECK_API(pagelab_remap_range(p, 4 * PAGE, NULL), -EINVAL);
    CHECK(munmap(p, 8 * PAGE) == 0);
}

enum { COUNT = 64 };

/* The number of frames that came back, of those that the same pages had before. */
static size_t asked_by_number(unsigned char *p) {
    uint64_t frames[COUNT];
    size_t same = 0;
    CHECK_API(pagelab_clear_range(p, COUNT * PAGE), 0);
    touch(p, COUNT);
    CHECK_API(pagelab_frames(p, COUNT, frames), 0);
    CHECK(madvise(p, COUNT * PAGE, MADV_DONTNEED) == 0);
    struct pagelab_hint hint = PAGELAB_HINT(PAGELAB_EXACT);
    hint.values = frames;
    hint.value_count = COUNT;
    CHECK_API(pagelab_set_range(p, COUNT * PAGE, &hint), 0);
    CHECK_API(pagelab_strategy_at(p), PAGELAB_EXACT);
    touch(p, COUNT);
    for (size_t i = 0; i < COUNT; i++) same += frame_of(p + i * PAGE) == frames[i];
    CHECK(madvise(p, COUNT * PAGE, MADV_DONTNEED) == 0);
    return same;
}

/* Frames that were just given back can be asked for by number. Others may take them, and until the kernel empties the lists of
 * its processors, which it does ten times a second at most, it does not find them. */
static void by_number(void) {
    unsigned char *p = map_anon(COUNT * PAGE);
    int tries = 0;
    CHECK(madvise(p, COUNT * PAGE, MADV_NOHUGEPAGE) == 0 || errno == EINVAL);
    while (asked_by_number(p) < COUNT / 2) {
        CHECK(++tries < 50);
        usleep(100000);
    }
    give_back(p, COUNT);
}

/* An ordinary user may take hints back, and give none: not even where it can open the file. */
static void without_rights(void) {
    unsigned char *p = map_anon(PAGE);
    struct pagelab_hint hint = hint_of(PAGELAB_PAGE_COLORING, 16);
    for (int dumpable = 0; dumpable <= 1; dumpable++) {
        pid_t pid = fork();
        if (pid == 0) {
            uint64_t frame;
            *p = 1;
            CHECK(setuid(1000) == 0 && prctl(PR_SET_DUMPABLE, dumpable) == 0);
            CHECK_API(pagelab_start(), -EPERM);
            CHECK_API(pagelab_set_range(p, PAGE, &hint), -EPERM);
            CHECK_API(pagelab_clear_range(p, PAGE), dumpable ? 0 : -EPERM);
            CHECK_API(pagelab_frames(p, 1, &frame), -EPERM);
            _exit(0);
        }
        CHECK(wait_for(pid) == 0);
    }
    CHECK(munmap(p, PAGE) == 0);
}

static void pinned(void) {
    unsigned char *p = map_anon(PAGES * PAGE);
    struct pagelab_hint hint = hint_of(PAGELAB_PAGE_COLORING, 16);
    hint.flags = PAGELAB_PIN;
    CHECK_API(pagelab_set_range(p, PAGES * PAGE, &hint), 0);
    touch(p, PAGES);
    CHECK_COLORED(p, PAGES, 16);
    give_back(p, PAGES);
}

/* Beside a policy of page colouring with 16 colours: a range and what is not in it, both there at the end. */
static void beside_a_policy(void) {
    unsigned char *p = map_anon(2 * PAGES * PAGE);
    struct pagelab_hint hint = hint_of(PAGELAB_PAGE_COLORING, 25);
    CHECK_API(pagelab_strategy_at(p), PAGELAB_PAGE_COLORING);
    CHECK_API(pagelab_color_count(p), 16);
    CHECK_API(pagelab_set_range(p, PAGES * PAGE, &hint), 0);
    touch(p, 2 * PAGES);
    CHECK_COLORED(p, PAGES, 25);
    CHECK_COLORED(p + PAGES * PAGE, PAGES, 16);
    unsigned char *own = map_anon(PAGES * PAGE);
    CHECK_API(pagelab_set_default(&hint), 0);
    touch(own, PAGES);
    CHECK_COLORED(own, PAGES, 25);
    CHECK_API(pagelab_set_default(NULL), 0);
    CHECK(madvise(own, PAGES * PAGE, MADV_DONTNEED) == 0);
    touch(own, PAGES);
    CHECK_COLORED(own, PAGES, 16);
}

/* A default of the program's own is for what the policy's rule does not name. */
static void beside_a_rule(void) {
    struct pagelab_hint hint = hint_of(PAGELAB_PAGE_COLORING, 25);
    unsigned char *p = map_anon(PAGES * PAGE), *heap = sbrk((PAGES + 1) * PAGE);
    CHECK(heap != (void *)-1);
    heap += -(uintptr_t)heap % PAGE;
    CHECK_API(pagelab_set_default(&hint), 0);
    touch(p, PAGES);
    touch(heap, PAGES);
    CHECK_COLORED(p, PAGES, 25);
    CHECK_COLORED(heap, PAGES, 16);
    CHECK_API(pagelab_strategy_at(p), PAGELAB_PAGE_COLORING);
    CHECK_API(pagelab_set_default(NULL), 0);
    CHECK_API(pagelab_strategy_at(p), PAGELAB_KERNEL);
    CHECK_API(pagelab_strategy_at(heap), PAGELAB_PAGE_COLORING);
    CHECK_API(pagelab_color_count(heap), 16);
}

static void open_to_all(const char *value) {
    int file = open("/proc/sys/vm/page_hints_unprivileged", O_WRONLY | O_CLOEXEC);
    CHECK(file >= 0 && write(file, value, 1) == 1 && close(file) == 0);
}

/* Where the machine opens colours, an ordinary user has them, but no frames of its choice. */
static void with_open_colors(void) {
    unsigned char *p = map_anon(PAGES * PAGE);
    struct pagelab_hint hint = hint_of(PAGELAB_PAGE_COLORING, 16), exact = PAGELAB_HINT(PAGELAB_EXACT);
    uint64_t frames[] = {4096};
    exact.values = frames;
    exact.value_count = 1;
    open_to_all("1");
    pid_t pid = fork();
    if (pid == 0) {
        struct pagelab_counters counters;
        CHECK(setuid(1000) == 0 && prctl(PR_SET_DUMPABLE, 1) == 0);
        CHECK_API(pagelab_start(), 0);
        CHECK_API(pagelab_set_range(p, PAGES * PAGE, &hint), 0);
        CHECK_API(pagelab_set_range(p, PAGE, &exact), -EPERM);
        touch(p, PAGES);
        CHECK_API(pagelab_counters(&counters, sizeof counters), 0);
        CHECK(counters.placed >= PAGES && counters.fallbacks == 0);
        _exit(0);
    }
    CHECK(wait_for(pid) == 0);
    open_to_all("0");
    CHECK(munmap(p, PAGES * PAGE) == 0);
}

/* A strategy whose module is gone is told apart from a hint that makes no sense. */
static void without_module(void) {
    unsigned char *p = map_anon(PAGE);
    struct pagelab_hint hint = hint_of(PAGELAB_RANDOM, 16);
    CHECK(syscall(SYS_delete_module, "placement_random", O_NONBLOCK) == 0);
    CHECK_API(pagelab_set_range(p, PAGE, &hint), -ENOENT);
    int module = open("/modules/placement_random.ko", O_RDONLY | O_CLOEXEC);
    CHECK(module >= 0 && syscall(SYS_finit_module, module, "", 0) == 0);
    CHECK_API(pagelab_set_range(p, PAGE, &hint), 0);
    give_back(p, 1);
}

static void counted(void) {
    struct pagelab_counters counters, more;
    CHECK_API(pagelab_counters(&counters, sizeof counters), 0);
    CHECK(counters.placed >= 6 * PAGES);
    CHECK(counters.requests == counters.placed + counters.fallbacks + counters.zero_pages);
    memset(&more, 0xff, sizeof more);
    CHECK_API(pagelab_counters(&more, 2 * sizeof(uint64_t)), 0);
    CHECK(more.placed == counters.placed && more.fallbacks == UINT64_MAX);
}

/* Nothing happens, and every hint says why. */
static void without_the_kernel(void) {
    unsigned char *p = map_anon(PAGES * PAGE);
    struct pagelab_hint hint = hint_of(PAGELAB_PAGE_COLORING, 16), bad = hint_of(6, 16);
    struct pagelab_counters counters;
    uint64_t frames[PAGES];
    uint32_t colors[PAGES];
    touch(p, PAGES);
    CHECK_API(pagelab_version(), PAGELAB_API_VERSION);
    CHECK_API(pagelab_backend(), PAGELAB_BY_KERNEL);
    CHECK_API(pagelab_start(), -EOPNOTSUPP);
    CHECK_API(pagelab_set_range(p, PAGES * PAGE, &hint), -EOPNOTSUPP);
    CHECK_API(pagelab_set_range(p, PAGES * PAGE, &bad), -EINVAL);
    CHECK_API(pagelab_set_default(&hint), -EOPNOTSUPP);
    CHECK_API(pagelab_set_default(NULL), -EOPNOTSUPP);
    CHECK_API(pagelab_clear_range(p, PAGE), -EOPNOTSUPP);
    CHECK_API(pagelab_remap_range(p, PAGE, NULL), -EOPNOTSUPP);
    CHECK_API(pagelab_strategy_at(p), PAGELAB_KERNEL);
    CHECK_API(pagelab_counters(&counters, sizeof counters), 0);
    CHECK(counters.requests == 0);
    int count = pagelab_color_count(p), error = pagelab_frames(p, PAGES, frames);
    CHECK(count > 0 && (error == 0 || error == -EPERM));
    CHECK_API(pagelab_colors(p, PAGES, colors), error);
    for (size_t i = 0; error == 0 && i < PAGES; i++) {
        CHECK(frames[i] == frame_of(p + i * PAGE) && colors[i] == frames[i] % (uint64_t)count);
    }
    CHECK_API(pagelab_begin("window"), -ENOSYS);
}

int main(int argc, char **argv) {
    const char *wanted = argc > 1 ? argv[1] : "";
    if (strcmp(wanted, "without") == 0) {
        without_the_kernel();
        return ok();
    }
    if (strcmp(wanted, "policy") == 0) {
        beside_a_policy();
        return ok();
    }
    if (strcmp(wanted, "rule") == 0) {
        beside_a_rule();
        return ok();
    }
    CHECK_API(pagelab_version(), PAGELAB_API_VERSION);
    int by_kernel = pagelab_backend() == PAGELAB_BY_KERNEL;
    CHECK(*wanted == 0 || by_kernel == (strcmp(wanted, "library") != 0));
    CHECK_API(pagelab_start(), 0);
    pinned(); /* first: the engine gives no pool that others have used to pinned pages */
    only_the_range();
    usual_colors();
    by_masks();
    in_order(0, 0, 7);
    policy.colours = 10;
    in_order(PAGELAB_DRAW_FIRST, 5, mixed_colour(5));
    by_values();
    drawn();
    by_process();
    replaced();
    moved();
    moved_from_a_child();
    in_threads();
    in_a_child();
    by_default();
    refused();
    counted();
    if (by_kernel) {
        by_number();
        if (getuid() == 0) without_rights();
    }
    if (strcmp(wanted, "machine") == 0) {
        with_open_colors();
        without_module();
    }
    return ok();
}

/* What is refused: bad input, and whoever has no right. */
#include "tests.h"

#include <sys/prctl.h>

void test_bad_input(void)
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
    BAD(EINVAL, bad.kinds = PAGE_HINT_FILE);
    BAD(EINVAL, bad.kinds = PAGE_HINT_HEAP; bad.flags = PAGE_HINT_DEMAND);
    BAD(0, bad.kinds = PAGE_HINT_DATA; bad.flags = PAGE_HINT_DEMAND);
    bad = good;
    bad.flags = PAGE_HINT_PIN;
    EXPECT(PAGE_HINTS_SET_FILE, &bad, EINVAL);
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
    /* Frame numbers have 63 bits, of which the largest number is none. */
    unsigned long frames[] = {0, ~0UL >> 1, 1UL << 63, ~0UL - 1};
    for (int at = 0; at < 4; at++) {
        bad = ranged(hint("exact", 0), memory, 1);
        bad.value_count = 1;
        bad.values = (uintptr_t)&frames[at];
        EXPECT(PAGE_HINTS_SET_RANGE, &bad, at ? EINVAL : 0);
    }
    frames[0] = (~0UL >> 1) - 1;
    bad.values = (uintptr_t)frames;
    EXPECT(PAGE_HINTS_SET_RANGE, &bad, 0);
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
    /* Only without a start a length of 0 means everything. */
    range = (struct page_hint_range){(uintptr_t)memory, 0};
    EXPECT(PAGE_HINTS_CLEAR, &range, EINVAL);
    EXPECT(PAGE_HINTS_CLEAR, NULL, EFAULT);
    EXPECT(PAGE_HINTS_COUNTERS, NULL, EFAULT);
    EXPECT(PAGE_HINTS_GET, NULL, EFAULT);
    EXPECT(PAGE_HINTS_KIND_COUNTERS, NULL, EFAULT);
#define GET(number, error, which)                                             \
    do {                                                                      \
        bad = good;                                                           \
        bad.kinds = (which);                                                  \
        EXPECT(number, &bad, error);                                          \
    } while (0)
    GET(PAGE_HINTS_GET, 0, PAGE_HINT_STACK);
    GET(PAGE_HINTS_GET, EINVAL, PAGE_HINT_STACK | PAGE_HINT_HEAP);
    GET(PAGE_HINTS_GET, EINVAL, PAGE_HINT_FILE);
    GET(PAGE_HINTS_GET, EINVAL, 0x20);
    GET(PAGE_HINTS_GET_FILE, EINVAL, PAGE_HINT_STACK);
    GET(PAGE_HINTS_GET_FILE, ENOENT, 0);
    EXPECT(PAGE_HINTS_KIND_COUNTERS, (&(struct page_hint_kind_counters){.kinds = 0x1f}), 0);
    EXPECT(PAGE_HINTS_KIND_COUNTERS, (&(struct page_hint_kind_counters){.kinds = 0x20}), EINVAL);
    EXPECT(PAGE_HINTS_KIND_COUNTERS, (&(struct page_hint_kind_counters){.reserved = 1}), EINVAL);
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
                               PAGE_HINTS_COUNTERS, PAGE_HINTS_SET_FILE, PAGE_HINTS_GET_FILE, PAGE_HINTS_REMAP,
                               PAGE_HINTS_KIND_COUNTERS};
    const char *names[] = {"page-coloring", "bin-hopping", "modulo", "random", "exact", "usual", ""};
    volatile char *memory = map(64);
    unsigned long values[64];
    srandom((unsigned)getpid());
    for (int round = 0; round < rounds; round++) {
        unsigned long number = numbers[random() % 9];
        struct page_hint made = hint(names[random() % 7], (unsigned)random() % 70);
        unsigned char *bytes = (unsigned char *)&made;
        for (int at = 0; at < 64; at++) values[at] = (unsigned long)random() << (random() % 34);
        if (random() % 2) made = ranged(made, memory + random() % 64 * (long)PAGE, 1 + random() % 64);
        made.masks = made.values = (uintptr_t)values;
        made.mask_count = (unsigned)random() % 4 ? 0 : (unsigned)random() % 20;
        made.value_count = (unsigned)random() % 2 ? 0 : (unsigned)random() % 64;
        made.flags = (unsigned)random() % 32;
        made.kinds = random() % 2 ? (unsigned)random() % 32 : 0;
        for (int flips = (int)(random() % 4); flips > 0; flips--)
            bytes[random() % (long)sizeof made] = (unsigned char)random();
        struct page_hint_remap moved = {.flags = random() % 8 == 0};
        if (number == PAGE_HINTS_REMAP && random() % 4) {
            moved.start = (uintptr_t)memory + (unsigned long)random() % 64 * PAGE;
            moved.length = (1 + (unsigned long)random() % 8) * PAGE;
            memcpy(&made, &moved, sizeof moved);
        }
        if (number == PAGE_HINTS_KIND_COUNTERS && random() % 2) made.size = (unsigned)random() % 32;
        void *argument = random() % 16 ? (void *)&made : (void *)(random() % 2 ? random() : -random());
        int error = command(file, number, argument);
        int sets = number == PAGE_HINTS_SET_DEFAULT || number == PAGE_HINTS_SET_RANGE || number == PAGE_HINTS_SET_FILE;
        CHECK(may_succeed || !sets || error != 0);
        memory[random() % 64 * (long)PAGE] = 1;
        if (random() % 64 == 0) madvise((void *)memory, 64 * PAGE, MADV_DONTNEED);
    }
}

void test_attacker(void)
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
        /* The page cache is not its own. */
        EXPECT(PAGE_HINTS_SET_FILE, &colors, EPERM);
        colors.flags = PAGE_HINT_PIN;
        EXPECT(PAGE_HINTS_SET_DEFAULT, &colors, EPERM);
        exact.values = (uintptr_t)&frame;
        exact.value_count = 1;
        exact = ranged(exact, memory, 1);
        EXPECT(PAGE_HINTS_SET_RANGE, &exact, EPERM);
        /* Values are kernel memory that no limit counts: a page of them. */
        struct page_hint many = hint("modulo", 16);
        many.values = (uintptr_t)calloc(PAGE / 8 + 1, 8);
        many.value_count = PAGE / 8 + 1;
        EXPECT(PAGE_HINTS_SET_DEFAULT, &many, EPERM);
        many.value_count = PAGE / 8;
        EXPECT(PAGE_HINTS_SET_DEFAULT, &many, 0);
        /* So are many colors, and masks of any bits: they would tell frame numbers at once. */
        many = hint("page-coloring", 1024);
        EXPECT(PAGE_HINTS_SET_DEFAULT, &many, 0);
        many.colors = 1025;
        EXPECT(PAGE_HINTS_SET_DEFAULT, &many, EPERM);
        many.colors = 0;
        many.masks = (uintptr_t)&frame;
        many.mask_count = 1;
        EXPECT(PAGE_HINTS_SET_DEFAULT, &many, EPERM);
        EXPECT(PAGE_HINTS_SET_FILE, &many, EPERM);
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

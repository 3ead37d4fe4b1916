/* pagelab_kernel.c: the functions of pagelab.h that choose frames, by the kernel alone.
 *
 * For programs that no library can be loaded into: static ones, those with musl, Go. They need a kernel with page placement
 * (kernel/README.md of pagelab); on any other one every hint is refused with -EOPNOTSUPP, and nothing happens.
 *
 *     cc -static -I"$include" program.c "$include/pagelab_kernel.c"
 *
 * Compile it into the program, not into an archive: the references to it are weak, and weak references take nothing out of
 * an archive. It starts no thread, takes no lock, and keeps nothing but the default hint that it found when the program
 * started: the kernel has the hints. docs/api.md says what it promises, and what the library promises beyond.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#ifndef PAGELAB_STRONG
#define PAGELAB_STRONG
#endif
#include "pagelab.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { PAGE = 4096, BATCH = 512, MOST_MASKS = 16, USUAL_COLORS = 64 };
#define MOST_COLORS 65536u
#define MOST_VALUES (1u << 20)
#define LARGEST_FRAME ((UINT64_C(1) << 40) - 1)
#define ADDRESS_END ((uintptr_t)1 << 56)

/* ---- the kernel's interface: include/uapi/linux/page_hints.h of its page placement ---- */

enum { HASH_PID = 0x1, FIRST = 0x2, PIN = 0x10 };
/* Kinds of memory with a default of their own: what brk gives, and anonymous mappings. */
enum { HEAP = 0x1, ANON = 0x2, KINDS = 2 };

/* struct page_hint */
struct hint_of_kernel {
    uint32_t size, flags;
    char strategy[32];
    uint64_t start, length;
    uint32_t colors, first;
    uint64_t seed, masks, values;
    uint32_t mask_count, kinds;
    uint64_t value_count;
};

/* struct page_hint_range */
struct range_of_kernel {
    uint64_t start, length;
};

/* struct page_hint_counters */
struct counters_of_kernel {
    uint64_t placed, unasked, absent, bound, watermark;
};

/* struct page_hint_remap */
struct remap_of_kernel {
    uint64_t start, length;
    uint32_t flags, reserved;
    uint64_t moved, there, failed;
};

#define REQUEST(direction, number, type) ((unsigned long)(direction) << 30 | sizeof(type) << 16 | 0xDCul << 8 | (number))
#define SET_DEFAULT REQUEST(1, 0, struct hint_of_kernel)
#define SET_RANGE REQUEST(1, 1, struct hint_of_kernel)
#define CLEAR REQUEST(1, 2, struct range_of_kernel)
#define GET REQUEST(3, 3, struct hint_of_kernel)
#define COUNTERS REQUEST(2, 4, struct counters_of_kernel)
#define REMAP REQUEST(3, 7, struct remap_of_kernel)

/* The kernel's names. Those that no hint can name (modules) are NULL. */
static const char *const names[] = {
    [PAGELAB_KERNEL] = "usual",
    [PAGELAB_PAGE_COLORING] = "page-coloring",
    [PAGELAB_BIN_HOPPING] = "bin-hopping",
    [PAGELAB_MODULO] = "modulo",
    [PAGELAB_EXACT] = "exact",
    [PAGELAB_RANDOM] = "random",
};
enum { NAMES = sizeof names / sizeof *names, MODULE = 6 };

/* A descriptor, or the negative errno that docs/api.md names. */
static int open_hints(int flags)
{
    int file = open("/proc/self/page_hints", flags | O_CLOEXEC);
    if (file >= 0)
        return file;
    return errno == ENOENT ? -EOPNOTSUPP : errno == EACCES ? -EPERM : -errno;
}

/* One request: 0 or the negative errno that docs/api.md names. */
static int request(int file, unsigned long number, void *argument)
{
    if (syscall(SYS_ioctl, file, number, argument) == 0)
        return 0;
    switch (errno) {
    case ERANGE: /* more colours than the machine has pages */
    case E2BIG:
        return -EINVAL;
    case ENOTTY: /* a series from before this request */
        return -EOPNOTSUPP;
    default:
        return -errno;
    }
}

static int request_once(int flags, unsigned long number, void *argument)
{
    int file = open_hints(flags), error = file;
    if (file >= 0) {
        error = request(file, number, argument);
        close(file);
    }
    return error;
}

static struct hint_of_kernel named(uint32_t strategy)
{
    struct hint_of_kernel hint = {0};
    hint.size = sizeof hint;
    for (size_t at = 0; names[strategy][at] != 0; at++)
        hint.strategy[at] = names[strategy][at];
    return hint;
}

static uint32_t kind_of(const struct hint_of_kernel *hint)
{
    for (uint32_t kind = 0; kind < NAMES; kind++) {
        if (names[kind] == NULL)
            continue;
        size_t at = 0;
        while (names[kind][at] != 0 && names[kind][at] == hint->strategy[at])
            at++;
        if (names[kind][at] == hint->strategy[at])
            return kind;
    }
    return MODULE; /* a strategy that this file does not know */
}

/* The hint that holds at an address or, if `kind` is not 0, the default of that kind of memory: 1, or 0 without one, or a
 * negative errno. */
static int get_hint(int file, uintptr_t address, uint32_t kind, struct hint_of_kernel *hint)
{
    *hint = named(PAGELAB_KERNEL);
    hint->start = address;
    hint->kinds = kind;
    int error = request(file, GET, hint);
    return error == 0 ? 1 : error == -ENOENT ? 0 : error;
}

static int hint_at(int file, uintptr_t address, struct hint_of_kernel *hint)
{
    return get_hint(file, address, 0, hint);
}

/* ---- ranges and pages ---- */

struct pages {
    uintptr_t start, end;
};

/* All pages that hold a byte of the range: 0 or -EINVAL. */
static int pages_of(const void *addr, size_t len, struct pages *pages)
{
    uintptr_t start = (uintptr_t)addr;
    if (len == 0 || start > ADDRESS_END || len > ADDRESS_END - start)
        return -EINVAL;
    pages->start = start & ~(uintptr_t)(PAGE - 1);
    pages->end = (start + len + PAGE - 1) & ~(uintptr_t)(PAGE - 1);
    return 0;
}

/* 0, or -EFAULT: part of it is not mapped. msync with MS_ASYNC looks at that and does nothing (Linux 2.6.19). */
static int check_mapped(struct pages pages)
{
    return msync((void *)pages.start, pages.end - pages.start, MS_ASYNC) == 0 ? 0 : -EFAULT;
}

/* Words of a file of /proc that has one for each page or frame: 0 or -EFAULT. */
static int read_words(int file, uint64_t first, uint64_t *words, size_t count)
{
    size_t bytes = count * sizeof *words, done = 0;
    while (done < bytes) {
        ssize_t got = pread(file, (char *)words + done, bytes - done, (off_t)(first * sizeof *words + done));
        if (got <= 0)
            return -EFAULT;
        done += (size_t)got;
    }
    return 0;
}

/* Bits of a pagemap entry. */
#define PRESENT (UINT64_C(1) << 63)
#define EXCLUSIVE (UINT64_C(1) << 56)
#define FRAME ((UINT64_C(1) << 55) - 1)

/* Calls `visit` with the pagemap entries of some pages, part by part: 0 or a negative errno. */
static int each_entry(struct pages pages, void (*visit)(uintptr_t, const uint64_t *, size_t, void *), void *with)
{
    uint64_t entries[BATCH];
    int file = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC), error = file < 0 ? -EPERM : 0;
    for (uintptr_t at = pages.start; at < pages.end && error == 0; at += BATCH * PAGE) {
        size_t count = (pages.end - at) / PAGE;
        count = count < BATCH ? count : BATCH;
        error = read_words(file, at / PAGE, entries, count);
        if (error == 0)
            visit(at, entries, count, with);
    }
    if (file >= 0)
        close(file);
    return error;
}

static int tells_frames(void)
{
    uint64_t entry = 0;
    int file = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
    if (file < 0)
        return 0;
    int error = read_words(file, (uintptr_t)&entry / PAGE, &entry, 1);
    close(file);
    return error == 0 && (entry & FRAME) != 0;
}

/* ---- colours ---- */

static uint32_t number_in(const char *path)
{
    char text[32];
    uint32_t number = 0;
    int file = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t got = file < 0 ? 0 : read(file, text, sizeof text);
    if (file >= 0)
        close(file);
    for (ssize_t at = 0; at < got && text[at] >= '0' && text[at] <= '9'; at++)
        number = number * 10 + (uint32_t)(text[at] - '0');
    return number;
}

static uint32_t one_way_of_cache(void)
{
    uint32_t sets = number_in("/sys/devices/system/cpu/cpu0/cache/index2/number_of_sets");
    uint32_t line = number_in("/sys/devices/system/cpu/cpu0/cache/index2/coherency_line_size");
    uint64_t colors = (uint64_t)sets * line / PAGE;
    if (sets == 0 || line == 0 || colors > MOST_COLORS)
        return USUAL_COLORS;
    return colors == 0 ? 1 : (uint32_t)colors;
}

/* As many colours as one way of the second-level cache holds pages. */
static uint32_t colors_of_cache(void)
{
    static uint32_t known; /* 0: not asked yet */
    uint32_t colors = __atomic_load_n(&known, __ATOMIC_RELAXED);
    if (colors == 0) {
        colors = one_way_of_cache();
        __atomic_store_n(&known, colors, __ATOMIC_RELAXED);
    }
    return colors;
}

/* How the frame of an address is coloured. */
struct coloring {
    uint32_t count;
    int masked;      /* by masks, which the kernel does not tell */
    uintptr_t until; /* up to this address, at least the page's end */
};

static int take_coloring(struct coloring *coloring, int found, const struct hint_of_kernel *hint)
{
    if (found == 1 && hint->colors != 0) {
        coloring->count = hint->colors;
        coloring->masked = hint->mask_count != 0;
    }
    return coloring->count != 0;
}

/* As the policy counts colours, or the program's own default, else as the cache has them. */
static void take_usual(struct coloring *coloring, int file)
{
    struct hint_of_kernel hint;
    if (file >= 0 && take_coloring(coloring, get_hint(file, 0, ANON, &hint), &hint))
        return;
    if (file >= 0 && take_coloring(coloring, get_hint(file, 0, HEAP, &hint), &hint))
        return;
    coloring->count = colors_of_cache();
}

/* As its hint counts colours, else as usual. */
static struct coloring coloring_at(int file, uintptr_t address)
{
    struct hint_of_kernel hint;
    uintptr_t page = address & ~(uintptr_t)(PAGE - 1);
    struct coloring coloring = {0, 0, page + PAGE};
    int found = file >= 0 ? hint_at(file, page, &hint) : 0;
    if (found == 1 && hint.length != 0)
        coloring.until = hint.start + hint.length;
    if (!take_coloring(&coloring, found, &hint))
        take_usual(&coloring, file);
    return coloring;
}

/* ---- hints ---- */

static int fill_colors(const struct pagelab_hint *hint, struct hint_of_kernel *to)
{
    if (hint->mask_count > MOST_MASKS || (hint->mask_count != 0 && hint->masks == NULL) || hint->colors > MOST_COLORS)
        return -EINVAL;
    if (hint->mask_count != 0 && hint->colors != 0 && hint->colors != 1u << hint->mask_count)
        return -EINVAL;
    to->masks = (uintptr_t)hint->masks;
    to->mask_count = (uint32_t)hint->mask_count;
    to->colors = hint->colors;
    if (hint->mask_count == 0 && hint->colors == 0) {
        int file = open_hints(O_RDONLY);
        struct coloring usual = {0, 0, 0};
        take_usual(&usual, file);
        if (file >= 0)
            close(file);
        if (usual.masked)
            return -EOPNOTSUPP;
        to->colors = usual.count;
    }
    return 0;
}

/* What the hint has beside colours and values, and only if its strategy takes it. */
static int fill_switches(const struct pagelab_hint *hint, struct hint_of_kernel *to)
{
    int hops = hint->strategy == PAGELAB_BIN_HOPPING;
    uint32_t flags = PAGELAB_PIN | (hops ? PAGELAB_DRAW_FIRST : 0);
    flags |= hint->strategy == PAGELAB_PAGE_COLORING ? PAGELAB_HASH_PID : 0;
    if ((hint->flags & ~flags) != 0 || hint->fault_around > UINT16_MAX || (hint->first != 0 && !hops))
        return -EINVAL;
    if (hops && hint->first >= (hint->mask_count != 0 ? 1u << hint->mask_count : to->colors))
        return -EINVAL;
    to->flags = (hint->flags & PAGELAB_HASH_PID) != 0 ? HASH_PID : 0;
    to->flags |= (hint->flags & PAGELAB_PIN) != 0 ? PIN : 0;
    if (hops && (hint->flags & PAGELAB_DRAW_FIRST) == 0) {
        to->flags |= FIRST;
        to->first = hint->first;
    }
    if (hops || hint->strategy == PAGELAB_RANDOM)
        to->seed = hint->seed;
    return 0;
}

/* Bits of /proc/kpageflags of frames that no program can have: no memory there, reserved, broken, offline. */
#define NEVER (UINT64_C(1) << 20 | UINT64_C(1) << 32 | UINT64_C(1) << 19 | UINT64_C(1) << 23)

/* Whether some program could have these frames; where nobody tells, yes. */
static int are_possible(const uint64_t *frames, size_t count)
{
    int file = open("/proc/kpageflags", O_RDONLY | O_CLOEXEC), possible = 1;
    for (size_t at = 0; at < count && file >= 0; at++) {
        uint64_t flags;
        if (frames[at] == PAGELAB_ANYWHERE)
            continue;
        possible = possible && read_words(file, frames[at], &flags, 1) == 0 && (flags & NEVER) == 0;
    }
    if (file >= 0)
        close(file);
    return possible;
}

static int check_values(const struct pagelab_hint *hint, uint32_t colors)
{
    int exact = hint->strategy == PAGELAB_EXACT;
    uint64_t most = exact ? LARGEST_FRAME : colors - 1;
    if (!exact && hint->strategy != PAGELAB_MODULO)
        return hint->value_count == 0 ? 0 : -EINVAL;
    if (hint->value_count == 0 || hint->value_count > MOST_VALUES || hint->values == NULL)
        return -EINVAL;
    for (size_t at = 0; at < hint->value_count; at++) {
        if (hint->values[at] > most && hint->values[at] != PAGELAB_ANYWHERE)
            return -EINVAL;
    }
    return !exact || are_possible(hint->values, hint->value_count) ? 0 : -EINVAL;
}

/* The kernel's hint for some pages from `start` on (0: the default). */
static int fill(const struct pagelab_hint *hint, uintptr_t start, struct hint_of_kernel *to)
{
    if (hint == NULL || hint->size < sizeof *hint || hint->strategy >= NAMES || names[hint->strategy] == NULL)
        return -EINVAL;
    *to = named(hint->strategy);
    to->start = start;
    if (hint->strategy == PAGELAB_KERNEL)
        return 0;
    int error = fill_colors(hint, to);
    if (error == 0)
        error = fill_switches(hint, to);
    if (error == 0)
        error = check_values(hint, hint->mask_count != 0 ? 1u << hint->mask_count : to->colors);
    to->values = (uintptr_t)hint->values;
    to->value_count = hint->value_count;
    if (hint->strategy == PAGELAB_EXACT) {
        to->colors = 0;
        to->mask_count = 0;
    }
    return error;
}

/* The kernel looks a pattern up by the number of the virtual page: turned so that the first page of the range finds the
 * first value. */
static int set_turned(unsigned long number, struct hint_of_kernel *hint)
{
    size_t count = hint->value_count, bytes = count * sizeof(uint64_t), turn = hint->start / PAGE % count;
    const uint64_t *values = (const uint64_t *)(uintptr_t)hint->values;
    uint64_t *turned = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (turned == MAP_FAILED)
        return -ENOMEM;
    for (size_t at = 0; at < count; at++)
        turned[(at + turn) % count] = values[at];
    hint->values = (uintptr_t)turned;
    int error = request_once(O_RDWR, number, hint);
    munmap(turned, bytes);
    return error;
}

/* A series that does not pin refuses a hint for it; all else that it refuses so is checked before. */
static int set(unsigned long number, struct hint_of_kernel *hint)
{
    int error = kind_of(hint) == PAGELAB_MODULO && hint->values != 0 ? set_turned(number, hint)
                                                                     : request_once(O_RDWR, number, hint);
    return error == -EINVAL && (hint->flags & PIN) != 0 ? -EOPNOTSUPP : error;
}

/* The default hints of heap and anonymous mappings when the program started: the policy's. `size` is 0 where there was
 * none. */
static struct hint_of_kernel policys[KINDS];

__attribute__((constructor)) static void learn_policys_defaults(void)
{
    int kept = errno, file = open_hints(O_RDONLY);
    for (uint32_t kind = 0; kind < KINDS && file >= 0; kind++) {
        if (get_hint(file, 0, 1u << kind, &policys[kind]) != 1)
            policys[kind].size = 0;
    }
    if (file >= 0)
        close(file);
    errno = kept;
}

/* Sets the default of the memory that no rule of the policy names, or (NULL) puts the policy's back. A default for all
 * memory is no rule's. One for some kinds may be a rule's, which must not be replaced, or what rules left of the policy's
 * default: the kernel does not tell. One with lists could not be put back. */
static int replace_default(struct hint_of_kernel *hint)
{
    struct hint_of_kernel before = named(PAGELAB_KERNEL);
    uint32_t kinds = 0;
    for (uint32_t kind = 0; kind < KINDS; kind++) {
        if (policys[kind].size != 0 && policys[kind].kinds != 0)
            continue;
        kinds |= 1u << kind;
        if (policys[kind].size != 0)
            before = policys[kind];
    }
    if (kinds == 0 || before.mask_count != 0 || before.value_count != 0)
        return -EOPNOTSUPP;
    hint = hint != NULL ? hint : &before;
    hint->kinds = kinds;
    return set(SET_DEFAULT, hint);
}

/* Moving: the pages that are in memory, and those that are shared become the program's own, by copying. */
static void count_present(uintptr_t at, const uint64_t *entries, size_t count, void *present)
{
    (void)at;
    for (size_t page = 0; page < count; page++)
        *(uint64_t *)present += (entries[page] & PRESENT) != 0;
}

static void unshare_pages(uintptr_t at, const uint64_t *entries, size_t count, void *nothing)
{
    enum { POPULATE_WRITE = 23 };
    (void)nothing;
    for (size_t page = 0; page < count; page++) {
        if ((entries[page] & PRESENT) != 0 && (entries[page] & EXCLUSIVE) == 0)
            (void)madvise((void *)(at + page * PAGE), PAGE, POPULATE_WRITE);
    }
}

/* Whether a strategy governs any of the pages. */
static int is_governed(int file, struct pages pages)
{
    struct hint_of_kernel hint;
    for (uintptr_t at = pages.start; at < pages.end;) {
        int found = hint_at(file, at, &hint);
        if (found == 1 && kind_of(&hint) != PAGELAB_KERNEL)
            return 1;
        at = found == 1 && hint.length != 0 ? hint.start + hint.length : at + PAGE;
    }
    return 0;
}

static int remap(int file, struct pages pages, struct pagelab_moved *moved)
{
    struct remap_of_kernel of_kernel = {pages.start, pages.end - pages.start, 0, 0, 0, 0, 0};
    uint64_t present = 0;
    if (!is_governed(file, pages))
        return -EINVAL;
    int error = each_entry(pages, unshare_pages, NULL);
    if (error == 0) {
        /* After a signal the same call goes on with what is left. */
        do
            error = request(file, REMAP, &of_kernel);
        while (error == -EINTR);
    }
    if (error == 0)
        error = each_entry(pages, count_present, &present);
    moved->pages = (pages.end - pages.start) / PAGE;
    moved->absent = moved->pages - present;
    moved->in_place = of_kernel.moved + of_kernel.there;
    moved->in_place = moved->in_place < present ? moved->in_place : present;
    moved->elsewhere = present - moved->in_place;
    return error;
}

static void take_frames(uintptr_t at, const uint64_t *entries, size_t count, void *frames)
{
    uint64_t **next = frames;
    (void)at;
    for (size_t page = 0; page < count; page++)
        *(*next)++ = (entries[page] & PRESENT) != 0 ? entries[page] & FRAME : 0;
}

static int frames_of(struct pages pages, uint64_t *frames)
{
    int error = check_mapped(pages);
    if (error == 0 && !tells_frames())
        error = -EPERM;
    return error == 0 ? each_entry(pages, take_frames, &frames) : error;
}

static int colors_of(int file, struct pages pages, const uint64_t *frames, uint32_t *colors)
{
    struct coloring coloring = {1, 0, 0};
    for (uintptr_t at = pages.start; at < pages.end; at += PAGE, frames++, colors++) {
        if (at >= coloring.until)
            coloring = coloring_at(file, at);
        if (coloring.masked)
            return -EOPNOTSUPP;
        *colors = *frames == 0 ? PAGELAB_NO_COLOR : (uint32_t)(*frames % coloring.count);
    }
    return 0;
}

/* ---- the interface ---- */

/* Leaves errno as it was. */
#define WITH_ERRNO_KEPT(result, expression) \
    do {                                    \
        int kept_ = errno;                  \
        (result) = (expression);            \
        errno = kept_;                      \
    } while (0)

int pagelab_kernel_version(void) { return PAGELAB_API_VERSION; }

int pagelab_kernel_backend(void) { return PAGELAB_BY_KERNEL; }

/* The kernel checks rights before parameters, and this hint has one that its strategy does not take. */
int pagelab_kernel_start(void)
{
    struct hint_of_kernel refused = named(PAGELAB_KERNEL);
    int error;
    refused.colors = 1;
    WITH_ERRNO_KEPT(error, request_once(O_RDWR, SET_DEFAULT, &refused));
    return error == -EINVAL ? 0 : error;
}

int pagelab_kernel_set_range(void *addr, size_t len, const struct pagelab_hint *hint)
{
    struct hint_of_kernel to;
    struct pages pages;
    int error = pages_of(addr, len, &pages), kept = errno;
    if (error == 0)
        error = fill(hint, pages.start, &to);
    if (error == 0)
        error = check_mapped(pages);
    if (error == 0) {
        to.length = pages.end - pages.start;
        error = set(SET_RANGE, &to);
    }
    errno = kept;
    return error;
}

int pagelab_kernel_clear_range(void *addr, size_t len)
{
    struct pages pages;
    int error = pages_of(addr, len, &pages);
    if (error == 0) {
        struct range_of_kernel range = {pages.start, pages.end - pages.start};
        WITH_ERRNO_KEPT(error, request_once(O_RDWR, CLEAR, &range));
    }
    return error;
}

int pagelab_kernel_set_default(const struct pagelab_hint *hint)
{
    struct hint_of_kernel to;
    int error = 0, kept = errno;
    if (hint != NULL)
        error = fill(hint, 0, &to);
    if (error == 0)
        error = replace_default(hint != NULL ? &to : NULL);
    errno = kept;
    return error;
}

int pagelab_kernel_remap_range(void *addr, size_t len, struct pagelab_moved *moved)
{
    struct pagelab_moved found = {0, 0, 0, 0};
    struct pages pages;
    int error = pages_of(addr, len, &pages), kept = errno, file = -1;
    if (error == 0)
        error = check_mapped(pages);
    if (error == 0)
        error = file = open_hints(O_RDWR);
    if (file >= 0) {
        error = remap(file, pages, &found);
        close(file);
    }
    if (error == 0 && moved != NULL)
        *moved = found;
    errno = kept;
    return error;
}

int pagelab_kernel_frames(const void *addr, size_t pages, uint64_t *frames)
{
    struct pages all;
    int error;
    if (frames == NULL)
        return -EINVAL;
    if (pages == 0)
        return 0;
    if (pages > ADDRESS_END / PAGE)
        return -EINVAL;
    error = pages_of((const void *)((uintptr_t)addr & ~(uintptr_t)(PAGE - 1)), pages * PAGE, &all);
    if (error == 0)
        WITH_ERRNO_KEPT(error, frames_of(all, frames));
    return error;
}

int pagelab_kernel_colors(const void *addr, size_t pages, uint32_t *colors)
{
    uint64_t frames[BATCH];
    int error = colors == NULL ? -EINVAL : 0, kept = errno, file = open_hints(O_RDONLY);
    uintptr_t start = (uintptr_t)addr & ~(uintptr_t)(PAGE - 1);
    for (size_t at = 0; at < pages && error == 0; at += BATCH) {
        size_t count = pages - at < BATCH ? pages - at : BATCH;
        struct pages some = {start + at * PAGE, start + (at + count) * PAGE};
        error = pagelab_kernel_frames((const void *)some.start, count, frames);
        if (error == 0)
            error = colors_of(file, some, frames, colors + at);
    }
    if (file >= 0)
        close(file);
    errno = kept;
    return error;
}

int pagelab_kernel_color_count(const void *addr)
{
    int kept = errno, file = open_hints(O_RDONLY);
    struct coloring found = coloring_at(file, (uintptr_t)addr);
    if (file >= 0)
        close(file);
    errno = kept;
    return (int)found.count;
}

int pagelab_kernel_strategy_at(const void *addr)
{
    struct hint_of_kernel hint;
    int kept = errno, file = open_hints(O_RDONLY), found = 0;
    if (file >= 0) {
        found = hint_at(file, (uintptr_t)addr, &hint);
        close(file);
    }
    errno = kept;
    return found == 1 ? (int)kind_of(&hint) : PAGELAB_KERNEL;
}

int pagelab_kernel_counters(struct pagelab_counters *counters, size_t size)
{
    struct counters_of_kernel counted = {0, 0, 0, 0, 0};
    struct pagelab_counters all = {0};
    if (counters == NULL)
        return -EINVAL;
    int error;
    WITH_ERRNO_KEPT(error, request_once(O_RDONLY, COUNTERS, &counted));
    if (error == 0) {
        all.placed = counted.placed;
        all.fallbacks = counted.absent + counted.bound + counted.watermark;
        all.requests = all.placed + all.fallbacks;
    }
    for (size_t at = 0; at < size; at++)
        ((char *)counters)[at] = at < sizeof all ? ((const char *)&all)[at] : 0;
    return 0;
}

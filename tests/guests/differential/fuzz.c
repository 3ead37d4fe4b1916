/* A differential fuzzer of memory calls. From a seed it makes a sequence of calls, checks what memory holds against a
 * model of its own, and prints a trace in which no address occurs. The trace must be the same natively and under every
 * policy.
 *
 * Arguments: seed, first episode, episodes, operations of each, threads; then, as may be needed:
 *   say          print every operation; without it a digest of each episode is printed
 *   only=1,4,5   carry out only these operations of each thread
 *   without=WORD leave out operations of this name (several times if need be)
 *
 * An episode begins and ends with nothing mapped. What an operation does follows from the seed, the episode, the thread and its own
 * number, never from an address or from what happened before: so operations can be left out, and the others stay.
 *
 * Blocks have numbers. A thread owns its blocks. Addresses that a block gives up for good are never used again, since another block may lie
 * there: where an operation needs its own hole, it makes the hole, uses it and fills it while nobody else may map. */
#include "model.h"

#include <sched.h>
#include <stdarg.h>
#include <sys/syscall.h>
#include <sys/uio.h>

#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif
#ifndef MADV_DONTNEED_LOCKED
#define MADV_DONTNEED_LOCKED 24
#endif
#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22
#define MADV_POPULATE_WRITE 23
#endif
#define MADV_GUARD_INSTALL 102 /* Linux 6.13 */
#define MADV_GUARD_REMOVE 103

/* Where pagelab's heap ends and its pools begin: a program may map there, too. The border between pools is one that only
 * few policies have. */
static const uintptr_t BORDERS[] = {0x670000000000, 0x680000000000};
enum { ZONE_PAGES = 1024 };

static uint64_t seed, first_episode, episodes, operations;
static long threads;
static int says, reserved;
static char only[1 << 16];
static const char *without[32];
static int without_count, only_some;
static int memory_file;
static unsigned char *heap_base;
/* Held for writing while there is a hole that nobody else may fill, for reading while something is mapped. */
static pthread_rwlock_t mapping = PTHREAD_RWLOCK_INITIALIZER;
static pthread_barrier_t meeting;

/* ---- the trace ---- */

/* As dprintf, which would move the break to have room for its buffer. */
__attribute__((format(printf, 2, 3))) static void print(int fd, const char *format, ...) {
    char text[600];
    va_list list;
    va_start(list, format);
    int length = vsnprintf(text, sizeof text, format, list);
    va_end(list);
    if (write(fd, text, (size_t)length) != length) _exit(6);
}

static __thread struct worker *self;

__attribute__((format(printf, 2, 3), noreturn)) static void wrong(struct worker *w, const char *what, ...) {
    char text[400];
    va_list list;
    va_start(list, what);
    vsnprintf(text, sizeof text, what, list);
    va_end(list);
    print(2, "seed %llu episode %llu thread %d operation %llu (%s)%s: %s\n", (unsigned long long)seed,
            (unsigned long long)w->episode, w->number, (unsigned long long)w->operation, w->name,
            w->is_child ? " in a child" : "", text);
    _exit(3);
}

static void mix(struct worker *w, uint64_t value) {
    w->digest = (w->digest ^ value) * 0x9E3779B97F4A7C15u;
    w->digest ^= w->digest >> 29;
}

/* One fact: where it happened is a block's number and a page in it. */
static void note(struct worker *w, int slot, size_t from, size_t count, long result) {
    mix(w, (uint64_t)slot << 48 ^ (uint64_t)from << 24 ^ count);
    mix(w, (uint64_t)result);
    if (says)
        print(1, "%llu.%d.%llu%s %s block %d pages %zu+%zu -> %ld\n", (unsigned long long)w->episode, w->number,
                (unsigned long long)w->operation, w->is_child ? "c" : "", w->name, slot, from, count, result);
}

static long outcome(long result) { return result == -1 ? -errno : 0; }

/* ---- faults ---- */

static __thread sigjmp_buf fault_jump;
static __thread volatile int fault_expected;

static void on_fault(int number, siginfo_t *info, void *context) {
    (void)context;
    if (fault_expected) siglongjmp(fault_jump, number);
    if (self) wrong(self, "signal %d (code %d) at %p", number, info->si_code, info->si_addr);
    _exit(4);
}

/* The signal that touching a page raises, or 0. */
static int touch(volatile unsigned char *at, int writes) {
    int got = sigsetjmp(fault_jump, 0);
    if (got == 0) {
        fault_expected = 1;
        if (writes)
            *at = *at;
        else
            (void)*at;
    }
    fault_expected = 0;
    return got;
}

/* ---- contents ---- */

static void check_words(struct worker *w, const unsigned char *page, uint32_t stamp, const char *what, size_t i) {
    for (size_t at = 0; at < PAGE; at += 512) {
        uint64_t got, want = stamp ? (uint64_t)stamp << 32 | at : 0;
        memcpy(&got, page + at, sizeof got);
        if (got != want) wrong(w, "%s page %zu holds %llx at %zu, not %llx", what, i, (unsigned long long)got, at, (unsigned long long)want);
        memcpy(&got, page + at + 256, sizeof got);
        if (got != 0) wrong(w, "%s page %zu holds %llx at %zu, not 0", what, i, (unsigned long long)got, at + 256);
    }
}

static void write_page(unsigned char *page, uint32_t stamp) {
    for (size_t at = 0; at < PAGE; at += 512) {
        uint64_t word = (uint64_t)stamp << 32 | at;
        memcpy(page + at, &word, sizeof word);
    }
}

static void check_page(struct worker *w, const struct block *b, size_t i) {
    const struct page *page = &b->page[i];
    unsigned char *at = b->base + i * PAGE;
    if (page->flags & GUARDED || !(page->prot & PROT_READ)) {
        if (touch(at, 0) != SIGSEGV) wrong(w, "block %d page %zu can be read", slot_of(w, b), i);
        return;
    }
    check_words(w, at, page->stamp, "the block's", i);
    if (!(page->prot & PROT_WRITE) && touch(at, 1) != SIGSEGV) wrong(w, "block %d page %zu can be written", slot_of(w, b), i);
}

/* Both ends of a range, their neighbours, and two pages anywhere. */
static void check_around(struct worker *w, const struct block *b, size_t from, size_t count) {
    if (b->pages == 0) return;
    if (from > 0 && from - 1 < b->pages) check_page(w, b, from - 1);
    if (count > 0 && from < b->pages) check_page(w, b, from);
    if (count > 1 && from + count - 1 < b->pages) check_page(w, b, from + count - 1);
    if (from + count < b->pages) check_page(w, b, from + count);
    check_page(w, b, pick(w, b->pages));
}

/* Every page that was written to, and some others. */
static void check_block(struct worker *w, const struct block *b) {
    for (size_t i = 0; i < b->pages; i++)
        if (b->page[i].stamp) check_page(w, b, i);
    check_around(w, b, 0, b->pages);
}

static int may_write(const struct page *page) {
    return page->prot & PROT_WRITE && !(page->flags & (GUARDED | IN_PIPE));
}

static void write_some(struct worker *w, struct block *b, size_t from, size_t count, size_t most) {
    for (size_t done = 0; done < most && done < count; done++) {
        size_t i = from + (count <= most ? done : pick(w, count));
        if (!may_write(&b->page[i])) continue;
        check_page(w, b, i);
        b->page[i].stamp = next_stamp(w);
        write_page(b->base + i * PAGE, b->page[i].stamp);
    }
}

/* Pages that were given back: nobody can read them now. Where they come from the kernel's reserved pages they may stay
 * (docs/preload.md). */
static void check_gone(struct worker *w, unsigned char *base, size_t pages) {
    size_t probes[] = {0, pages - 1, pick(w, pages)};
    if (threads > 1) return; /* another thread may have them already */
    for (size_t i = 0; i < 3; i++) {
        unsigned char *at = base + probes[i] * PAGE;
        int got = touch(at, 0);
        if (got != SIGSEGV && !(got == 0 && reserved))
            wrong(w, "page %zu of %zu can be read after it was given back", probes[i], pages);
    }
}

/* ---- operations ---- */

static int is_left_out(const char *name) {
    for (int i = 0; i < without_count; i++)
        if (strcmp(without[i], name) == 0) return 1;
    return 0;
}

static void allocate_begin(void) {
    if (threads > 1) CHECK(pthread_rwlock_rdlock(&mapping) == 0);
}

static void holes_begin(void) {
    if (threads > 1) CHECK(pthread_rwlock_wrlock(&mapping) == 0);
}

static void mapping_end(void) {
    if (threads > 1) CHECK(pthread_rwlock_unlock(&mapping) == 0);
}

static size_t some_pages(struct worker *w) {
    static const uint16_t typical[] = {1, 2, 16, 33, 64, 255, 511, 512, 513, 1024, 1100};
    switch (pick(w, 8)) {
    case 0: return typical[pick(w, 11)];
    case 1: return 1 + pick(w, 200);
    default: return 1 + pick(w, 24);
    }
}

static int some_prot(struct worker *w) {
    static const int kinds[] = {RW, RW, RW, RW, PROT_READ, PROT_NONE, RW | PROT_EXEC, PROT_READ | PROT_EXEC};
    return kinds[pick(w, 8)];
}

static int some_flags(struct worker *w) {
    static const int more[] = {0, 0, 0, MAP_NORESERVE, MAP_STACK, MAP_POPULATE, 0x1800 /* ignored ones */, MAP_NONBLOCK};
    return more[pick(w, 8)];
}

static void *map_block(struct worker *w, struct block *b, size_t pages, void *hint, int prot, int flags) {
    void *p = MAP_FAILED;
    allocate_begin();
    w->calls++;
    if (b->kind == ANONYMOUS) p = mmap(hint, pages * PAGE, prot, ANON | flags, -1, 0);
    if (b->kind == SHARED) p = mmap(hint, pages * PAGE, prot, MAP_SHARED | MAP_ANONYMOUS | flags, -1, 0);
    if (b->kind == FILE_PAGES) p = mmap(hint, pages * PAGE, prot, MAP_PRIVATE | flags, memory_file, (off_t)(b->file_page * PAGE));
    mapping_end();
    return p;
}

static void do_map(struct worker *w, struct block *b) {
    size_t pages = some_pages(w);
    int prot = some_prot(w), flags = some_flags(w);
    void *hint = NULL;
    b->kind = pick(w, 10) ? ANONYMOUS : pick(w, 2) ? SHARED : FILE_PAGES;
    b->file_page = pick(w, FILE_LENGTH - MOST_PAGES);
    b->is_patched = 0;
    uint64_t special = pick(w, 40);
    if (special == 0) flags |= MAP_LOCKED, prot = RW, flags &= ~MAP_POPULATE;
    if (special == 1 && b->kind == ANONYMOUS) flags |= MAP_32BIT;
    if (special == 2) hint = (void *)(uintptr_t)(0x10000000000 + pick(w, 1 << 20) * PAGE + pick(w, 2));
    if (special == 3 && !is_left_out("zone"))
        hint = (void *)(BORDERS[pick(w, 2) && !is_left_out("far")] + (pick(w, 64) - 32) * PAGE);
    unsigned char *p = map_block(w, b, pages, hint, prot, flags);
    if (p == MAP_FAILED) {
        note(w, slot_of(w, b), 0, pages, -errno);
        return;
    }
    if (!is_page_aligned(p)) wrong(w, "%p is no page", p);
    b->base = p;
    b->pages = pages;
    b->is_patched = special == 3; /* perhaps across a border: several mappings, also where it is moved to (docs/preload.md) */
    fresh_pages(b, 0, pages, prot, flags & MAP_LOCKED ? LOCKED : 0);
    check_around(w, b, 0, pages);
    note(w, slot_of(w, b), 0, pages, prot);
}

/* What remains of a block when a range of it goes for good. */
static void drop_range(struct worker *w, struct block *b, size_t from, size_t count) {
    size_t after = b->pages - from - count;
    b->is_patched |= count < b->pages; /* the kernel may keep what remains as it likes */
    if (from == 0) {
        b->base += count * PAGE;
        memmove(b->page, b->page + count, after * sizeof *b->page);
        b->file_page += count;
        b->pages = after;
        return;
    }
    if (after > 0) {
        struct block *other = free_slot(w);
        if (other) {
            other->kind = b->kind;
            other->is_patched = b->is_patched;
            other->base = b->base + (from + count) * PAGE;
            other->pages = after;
            other->file_page = b->file_page + from + count;
            memcpy(other->page, b->page + from + count, after * sizeof *b->page);
        } else {
            w->calls++;
            if (munmap(b->base + (from + count) * PAGE, after * PAGE) != 0) wrong(w, "munmap of what remains: %d", errno);
        }
    }
    b->pages = from;
}

static void do_unmap(struct worker *w, struct block *b, size_t from, size_t count) {
    int slot = slot_of(w, b);
    if (b->kind == HEAP_PAGES) return;
    if (pick(w, 2)) from = 0, count = b->pages;
    unsigned char *at = b->base + from * PAGE;
    w->calls++;
    size_t bytes = count * PAGE - pick(w, 2) * pick(w, PAGE); /* the kernel rounds up */
    long result = outcome(munmap(at, bytes));
    note(w, slot, from, count, result);
    if (result) wrong(w, "munmap of %zu pages: %ld", count, result);
    check_gone(w, at, count);
    drop_range(w, b, from, count);
    check_around(w, b, from, 0);
}

/* Calls on a range that has a hole, which is then filled again. */
static void do_punch(struct worker *w, struct block *b, size_t from, size_t count) {
    /* A hint is no reason for the library to part with a reserved page of which the program still has a part. */
    int slot = slot_of(w, b), fills = (int)pick(w, 3) % (reserved ? 2 : 3), prot = some_prot(w);
    unsigned char *at = b->base + from * PAGE, vector[MOST_PAGES];
    if (b->kind == HEAP_PAGES && pick(w, 4)) return;
    holes_begin();
    w->calls += 2;
    if (munmap(at, count * PAGE) != 0) wrong(w, "munmap: %d", errno);
    check_gone(w, at, count);
    if (from > 0 && from + count < b->pages && uniform(b, 0, from) && uniform(b, from + count, b->pages - from - count)) {
        size_t whole = b->pages * PAGE;
        long result = 0;
        w->calls++;
        switch (pick(w, 6)) {
        case 0: result = outcome(mincore(b->base, whole, vector)); break;
        case 1: result = outcome(msync(b->base, whole, MS_ASYNC)); break;
        case 2: result = outcome(madvise(b->base, whole, MADV_RANDOM)); break;
        case 3: result = outcome(mprotect(b->base + PAGE * (from - 1), (count + 2) * PAGE, b->page[from - 1].prot)); break;
        case 4: {
            void *p = mremap(b->base + PAGE * (from - 1), (count + 2) * PAGE, (count + 3) * PAGE, MREMAP_MAYMOVE);
            if (p != MAP_FAILED) wrong(w, "mremap of a range with a hole succeeds");
            result = -errno;
            break;
        }
        default: break;
        }
        /* Freed parts of the kernel's reserved pages stay mapped. */
        note(w, slot, from, count, reserved ? 0 : result);
    }
    w->calls++;
    void *p;
    if (fills == 0) p = mmap(at, count * PAGE, prot, ANON | MAP_FIXED, -1, 0);
    else if (fills == 1) p = mmap(at, count * PAGE, prot, ANON | MAP_FIXED_NOREPLACE, -1, 0);
    else p = mmap(at, count * PAGE, prot, ANON, -1, 0);
    mapping_end();
    if (p != at) wrong(w, "a hole of %zu pages cannot be filled (%d): %s", count, fills, p == MAP_FAILED ? strerror(errno) : "elsewhere");
    if (b->kind == SHARED || b->kind == FILE_PAGES) {
        /* Private memory in the middle: the block ends before it. */
        w->calls++;
        if (munmap(at, (b->pages - from) * PAGE) != 0) wrong(w, "munmap: %d", errno);
        b->pages = from;
        b->is_patched = 1;
        return;
    }
    fresh_pages(b, from, count, prot, 0);
    b->is_patched = 1;
    note(w, slot, from, count, prot);
    check_around(w, b, from, count);
    write_some(w, b, from, count, 3);
}

/* MAP_FIXED over a part, or MAP_FIXED_NOREPLACE, which must fail and change nothing. */
static void do_replace(struct worker *w, struct block *b, size_t from, size_t count) {
    int slot = slot_of(w, b), prot = some_prot(w), locked = pick(w, 20) == 0;
    unsigned char *at = b->base + from * PAGE;
    w->calls++;
    if (pick(w, 4) == 0) {
        void *p = mmap(at, count * PAGE, prot, ANON | MAP_FIXED_NOREPLACE, -1, 0);
        if (p != MAP_FAILED) wrong(w, "MAP_FIXED_NOREPLACE over %zu pages succeeds", count);
        note(w, slot, from, count, -errno);
        check_around(w, b, from, count);
        return;
    }
    if (b->kind == SHARED || b->kind == FILE_PAGES) return;
    if (locked) prot = RW;
    void *p = mmap(at, count * PAGE, prot, ANON | MAP_FIXED | (locked ? MAP_LOCKED : 0) | (some_flags(w) & ~MAP_POPULATE), -1, 0);
    if (p != at) wrong(w, "MAP_FIXED over %zu pages: %d", count, errno);
    fresh_pages(b, from, count, prot, locked ? LOCKED : 0);
    b->is_patched |= count < b->pages;
    note(w, slot, from, count, prot);
    check_around(w, b, from, count);
}

static void do_protect(struct worker *w, struct block *b, size_t from, size_t count) {
    int prot = some_prot(w);
    if (b->kind == SHARED && prot & PROT_EXEC) prot = RW;
    unsigned char *at = b->base + from * PAGE;
    w->calls++;
    long result;
    if (pick(w, 8)) {
        result = outcome(mprotect(at, count * PAGE - pick(w, 2) * 100, prot));
    } else {
        result = outcome(pkey_mprotect(at, count * PAGE, prot, pick(w, 2) ? -1 : 14));
    }
    note(w, slot_of(w, b), from, count, result);
    if (result == 0) {
        for (size_t i = from; i < from + count; i++) b->page[i].prot = (uint8_t)prot;
        b->is_patched |= count < b->pages;
    }
    check_around(w, b, from, count);
}

static void do_write(struct worker *w, struct block *b, size_t from, size_t count) {
    write_some(w, b, from, count, 4);
    note(w, slot_of(w, b), from, count, 0);
}

/* A part of the file's or of fresh contents: what discarding brings back. */
static void discard_pages(struct block *b, size_t from, size_t count) {
    for (size_t i = from; i < from + count; i++) {
        b->page[i].stamp = first_stamp(b, i);
        b->page[i].flags &= (uint8_t)~IN_PIPE;
    }
}

static void do_discard(struct worker *w, struct block *b, size_t from, size_t count) {
    int how = pick(w, 8) ? MADV_DONTNEED : MADV_DONTNEED_LOCKED;
    if (any(b, from, count, LOCKED)) count = uniform_run(b, from, count);
    if (reserved && b->page[from].flags & LOCKED) return; /* huge pages of the kernel's pool are never locked */
    w->calls++;
    long result = pick(w, 8) || how != MADV_DONTNEED ? outcome(madvise(b->base + from * PAGE, count * PAGE, how)) : 1;
    /* glibc's posix_madvise does nothing for POSIX_MADV_DONTNEED */
    if (result == 1) result = posix_madvise(b->base + from * PAGE, count * PAGE, POSIX_MADV_DONTNEED) + 1000;
    note(w, slot_of(w, b), from, count, result);
    if (result == 0 && b->kind != SHARED) discard_pages(b, from, count);
    check_around(w, b, from, count);
}

static void do_free(struct worker *w, struct block *b, size_t from, size_t count) {
    if (count > 12) count = 12;
    if (any(b, from, count, LOCKED | GUARDED | IN_PIPE) || b->kind == SHARED || b->kind == FILE_PAGES) return;
    if (!(b->page[from].prot & PROT_WRITE)) return;
    count = uniform_run(b, from, count);
    w->calls += 2;
    long result = outcome(madvise(b->base + from * PAGE, count * PAGE, MADV_FREE));
    note(w, slot_of(w, b), from, count, result);
    /* What was freed may be there or be gone, until it is written to. */
    for (size_t i = from; i < from + count; i++) {
        memset(b->base + i * PAGE, 0, PAGE);
        b->page[i].stamp = next_stamp(w);
        write_page(b->base + i * PAGE, b->page[i].stamp);
    }
    check_around(w, b, from, count);
}

static void do_advise(struct worker *w, struct block *b, size_t from, size_t count) {
    static const int kinds[] = {MADV_NORMAL, MADV_RANDOM, MADV_SEQUENTIAL, MADV_WILLNEED, MADV_MERGEABLE, MADV_UNMERGEABLE,
                                MADV_HUGEPAGE, MADV_NOHUGEPAGE, MADV_DONTDUMP, MADV_DODUMP, MADV_COLD, MADV_PAGEOUT,
                                MADV_COLLAPSE, 26, 99, -1, MADV_REMOVE};
    int advice = kinds[pick(w, sizeof kinds / sizeof *kinds)];
    if (reserved && b->page[from].flags & LOCKED) return; /* huge pages of the kernel's pool are never locked */
    count = uniform_run(b, from, count);
    w->calls++;
    long result = outcome(madvise(b->base + from * PAGE, count * PAGE, advice));
    if (advice == MADV_COLLAPSE) result = 0; /* it depends on the memory that is free */
    note(w, slot_of(w, b), from, count, result * 1000 + advice);
    if (advice == MADV_REMOVE && result == 0 && b->kind == SHARED) discard_pages(b, from, count);
    b->is_patched |= count < b->pages;
    check_around(w, b, from, count);
}

static void set_flags(struct block *b, size_t from, size_t count, uint8_t set, uint8_t cleared) {
    for (size_t i = from; i < from + count; i++) b->page[i].flags = (uint8_t)((b->page[i].flags & ~cleared) | set);
    b->is_patched |= count < b->pages;
}

static void do_fork_advice(struct worker *w, struct block *b, size_t from, size_t count) {
    static const struct {
        int advice;
        uint8_t set, cleared;
    } kinds[] = {{MADV_DONTFORK, NOT_FORKED, 0}, {MADV_DOFORK, 0, NOT_FORKED}, {MADV_WIPEONFORK, WIPED, 0}, {MADV_KEEPONFORK, 0, WIPED}};
    size_t kind = pick(w, 4);
    count = uniform_run(b, from, count);
    w->calls++;
    long result = outcome(madvise(b->base + from * PAGE, count * PAGE, kinds[kind].advice));
    note(w, slot_of(w, b), from, count, result * 1000 + kinds[kind].advice);
    if (result == 0) set_flags(b, from, count, kinds[kind].set, kinds[kind].cleared);
}

static void do_guard(struct worker *w, struct block *b, size_t from, size_t count) {
    int removes = (int)pick(w, 2);
    if (b->kind == SHARED || b->kind == FILE_PAGES) return;
    if (!(b->page[from].prot & PROT_WRITE)) return;
    if (reserved && b->page[from].flags & LOCKED) return; /* huge pages of the kernel's pool are never locked */
    count = uniform_run(b, from, count);
    w->calls++;
    long result = outcome(madvise(b->base + from * PAGE, count * PAGE, removes ? MADV_GUARD_REMOVE : MADV_GUARD_INSTALL));
    note(w, slot_of(w, b), from, count, result * 1000 + removes);
    if (result == 0 && !removes) {
        discard_pages(b, from, count);
        set_flags(b, from, count, GUARDED, 0);
    }
    if (result == 0 && removes) set_flags(b, from, count, 0, GUARDED);
    check_around(w, b, from, count);
}

static int all_resident(const struct block *b, size_t from, size_t count) {
    unsigned char vector[MOST_PAGES];
    if (mincore(b->base + from * PAGE, count * PAGE, vector) != 0) return -errno;
    for (size_t i = 0; i < count; i++)
        if (!(vector[i] & 1)) return 0;
    return 1;
}

static void do_populate(struct worker *w, struct block *b, size_t from, size_t count) {
    int writes = (int)pick(w, 2);
    if (count > 64) count = 64;
    count = uniform_run(b, from, count);
    w->calls += 2;
    long result = outcome(madvise(b->base + from * PAGE, count * PAGE, writes ? MADV_POPULATE_WRITE : MADV_POPULATE_READ));
    note(w, slot_of(w, b), from, count, result);
    if (result == 0) note(w, slot_of(w, b), from, count, all_resident(b, from, count));
    check_around(w, b, from, count);
}

static void do_lock(struct worker *w, struct block *b, size_t from, size_t count) {
    if (count > 64) count = 64;
    count = uniform_run(b, from, count);
    if (any(b, from, count, GUARDED) || !(b->page[from].prot & PROT_READ)) return;
    w->calls += 2;
    uint64_t kind = pick(w, 3);
    long result = kind == 2   ? outcome(munlock(b->base + from * PAGE, count * PAGE))
                  : kind == 1 ? outcome(syscall(SYS_mlock2, b->base + from * PAGE, count * PAGE, 1))
                              : outcome(mlock(b->base + from * PAGE, count * PAGE));
    note(w, slot_of(w, b), from, count, result);
    if (result == 0) set_flags(b, from, count, kind == 2 ? 0 : LOCKED, kind == 2 ? LOCKED : 0);
    if (result == 0 && kind == 0) note(w, slot_of(w, b), from, count, all_resident(b, from, count));
    check_around(w, b, from, count);
}

/* Moves a block that the kernel has as several mappings as a program must that knows of that. */
static unsigned char *move_by_hand(struct worker *w, struct block *b, size_t pages) {
    w->calls += 2;
    allocate_begin();
    unsigned char *p = mmap(NULL, pages * PAGE, RW, ANON, -1, 0);
    mapping_end();
    if (p == MAP_FAILED) wrong(w, "mmap: %d", errno);
    size_t kept = pages < b->pages ? pages : b->pages;
    if (!(b->page[0].prot & PROT_READ)) {
        if (mprotect(b->base, kept * PAGE, RW) != 0) wrong(w, "mprotect: %d", errno);
    }
    for (size_t i = 0; i < kept; i++)
        if (b->page[i].stamp) write_page(p + i * PAGE, b->page[i].stamp);
    if (munmap(b->base, b->pages * PAGE) != 0) wrong(w, "munmap: %d", errno);
    if (b->page[0].prot != RW && mprotect(p, pages * PAGE, b->page[0].prot) != 0) wrong(w, "mprotect: %d", errno);
    return p;
}

static void do_move(struct worker *w, struct block *b, size_t from, size_t count) {
    (void)from, (void)count;
    int slot = slot_of(w, b);
    size_t pages = pick(w, 3) ? some_pages(w) : b->pages, before = b->pages;
    if (b->kind != ANONYMOUS || !uniform(b, 0, b->pages) || any(b, 0, b->pages, GUARDED)) return;
    /* What grows while it is locked takes the rest of its tile with it (docs/preload.md). */
    if (b->page[0].flags & LOCKED) return;
    /* What moving by hand would not take along. */
    if (b->is_patched && any(b, 0, b->pages, NOT_FORKED | WIPED | LOCKED | IN_PIPE)) return;
    uint64_t kind = pick(w, 6);
    unsigned char *old = b->base, *p;
    w->calls++;
    if (kind == 0) { /* to a place of our own */
        allocate_begin();
        unsigned char *place = mmap(NULL, pages * PAGE, PROT_NONE, ANON, -1, 0);
        p = mremap(old, before * PAGE, pages * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, place);
        int error = errno;
        if (p == MAP_FAILED) munmap(place, pages * PAGE);
        mapping_end();
        errno = error;
        w->calls++;
    } else if (kind == 1 && before > 1 && !reserved) { /* grows into a hole of its own; freed parts of reserved pages are held */
        size_t part = 1 + pick(w, before - 1);
        holes_begin();
        if (munmap(old + part * PAGE, (before - part) * PAGE) != 0) wrong(w, "munmap: %d", errno);
        check_gone(w, old + part * PAGE, before - part);
        p = mremap(old, part * PAGE, before * PAGE, 0);
        int error = errno;
        if (p == MAP_FAILED && error == EFAULT && b->is_patched) p = mmap(old + part * PAGE, (before - part) * PAGE, b->page[0].prot, ANON | MAP_FIXED, -1, 0) == MAP_FAILED ? MAP_FAILED : old;
        mapping_end();
        errno = error;
        w->calls++;
        if (p != old) wrong(w, "mremap from %zu to %zu pages in place: %d", part, before, errno);
        fresh_pages(b, part, before - part, b->page[0].prot, b->page[0].flags & (uint8_t)~IN_PIPE);
        note(w, slot, part, before, 1);
        check_around(w, b, part, before - part);
        return;
    } else if (kind == 2 && pages < before) { /* smaller, in place */
        p = mremap(old, before * PAGE, pages * PAGE, 0);
        if (p != MAP_FAILED) check_gone(w, old + pages * PAGE, before - pages);
    } else if (kind == 3 && !b->is_patched && !(b->page[0].flags & LOCKED)) { /* the pages go, the place stays; Linux counts locked ones twice */
        allocate_begin();
        p = mremap(old, before * PAGE, before * PAGE, MREMAP_MAYMOVE | MREMAP_DONTUNMAP, NULL);
        int error = errno;
        mapping_end();
        if (p == MAP_FAILED) {
            note(w, slot, 0, before, -error);
            return;
        }
        w->calls++;
        b->base = p;
        check_around(w, b, 0, before);
        for (int i = 0; i < 2 && b->page[0].prot & PROT_READ; i++) check_words(w, old + (i ? (before - 1) * PAGE : 0), 0, "the left", 0);
        if (munmap(old, before * PAGE) != 0) wrong(w, "munmap: %d", errno);
        note(w, slot, 0, before, 2);
        return;
    } else {
        allocate_begin();
        p = mremap(old, before * PAGE, pages * PAGE, MREMAP_MAYMOVE);
        int error = errno;
        mapping_end();
        errno = error;
    }
    if (p == MAP_FAILED && errno == EFAULT && b->is_patched) p = move_by_hand(w, b, pages);
    if (p == MAP_FAILED) {
        note(w, slot, 0, pages, -errno);
        wrong(w, "mremap from %zu to %zu pages: %d", before, pages, errno);
    }
    uint8_t flags = b->page[0].flags & (uint8_t)~IN_PIPE;
    b->base = p;
    b->pages = pages;
    if (pages > before) fresh_pages(b, before, pages - before, b->page[0].prot, flags);
    note(w, slot, 0, pages, 0);
    check_around(w, b, pages < before ? pages - 1 : before - 1, 1);
}

/* Calls that must fail, and change nothing. */
static void do_errors(struct worker *w, struct block *b, size_t from, size_t count) {
    unsigned char *at = b->base + from * PAGE;
    size_t bytes = count * PAGE;
    long result = 0;
    w->calls++;
    switch (pick(w, 15)) {
    case 0: result = outcome(munmap(at + 1, bytes)); break;
    case 1: result = outcome(munmap(at, 0)); break;
    case 2: result = outcome(mprotect(at + 8, bytes, RW)); break;
    case 3: result = outcome(madvise(at + 8, bytes, MADV_DONTNEED)); break;
    case 4: result = outcome(mremap(at + 8, PAGE, PAGE, MREMAP_MAYMOVE) == MAP_FAILED ? -1 : 0); break;
    case 5: result = outcome(mremap(at, PAGE, 0, MREMAP_MAYMOVE) == MAP_FAILED ? -1 : 0); break;
    case 6: result = outcome(mmap(at, 0, RW, ANON | MAP_FIXED, -1, 0) == MAP_FAILED ? -1 : 0); break;
    case 7: result = outcome(mmap(at + 8, PAGE, RW, ANON | MAP_FIXED, -1, 0) == MAP_FAILED ? -1 : 0); break;
    case 8: result = outcome(mmap(NULL, PAGE, RW, MAP_PRIVATE, -1, 0) == MAP_FAILED ? -1 : 0); break;
    case 9: result = outcome(mmap(NULL, (size_t)1 << 62, RW, ANON, -1, 0) == MAP_FAILED ? -1 : 0); break;
    case 10: result = outcome(mprotect(at, bytes, 0x4000)); break;
    case 11: result = outcome(mremap(at, bytes, bytes, 64) == MAP_FAILED ? -1 : 0); break;
    case 12: result = outcome(mremap(at, bytes, bytes, MREMAP_FIXED | MREMAP_MAYMOVE, at) == MAP_FAILED ? -1 : 0); break;
    case 13: result = outcome(munmap((void *)((uintptr_t)1 << 47), PAGE)); break;
    default: result = outcome(madvise(at, (size_t)-PAGE, MADV_NORMAL)); break;
    }
    note(w, slot_of(w, b), from, count, result);
    check_around(w, b, from, count);
}

static void do_ask(struct worker *w, struct block *b, size_t from, size_t count) {
    w->calls++;
    long result = pick(w, 2) ? outcome(msync(b->base + from * PAGE, count * PAGE, pick(w, 2) ? MS_SYNC : MS_ASYNC)) : all_resident(b, from, count) < 0;
    note(w, slot_of(w, b), from, count, result);
}

/* ---- the break ---- */

static void do_break(struct worker *w, struct block *b) {
    size_t target = pick(w, 4) ? pick(w, 40) : pick(w, MOST_PAGES), before = b->pages;
    b->base = heap_base;
    if (b->kind != HEAP_PAGES) return;
    size_t odd = pick(w, 2) ? pick(w, PAGE) : 0;
    if (target == 0) odd = 0;
    w->calls++;
    /* The break lies within the last page: what is mapped is `target` pages. */
    unsigned char *wanted = heap_base + target * PAGE - odd;
    long result = pick(w, 2) ? outcome(brk(wanted)) : outcome(sbrk(wanted - (unsigned char *)sbrk(0)) == (void *)-1 ? -1 : 0);
    if (result == 0 && sbrk(0) != wanted) wrong(w, "the break is not where it was put");
    note(w, slot_of(w, b), before, target, result);
    if (result) return;
    b->pages = target;
    if (target > before) fresh_pages(b, before, target - before, RW, 0);
    check_around(w, b, target < before ? target : before, target > before ? target - before : 0);
    write_some(w, b, 0, target, 2);
}

/* ---- pages that the kernel uses ---- */

static void do_pipe_in(struct worker *w, struct block *b, size_t from, size_t count) {
    struct channel *c = &w->channel[pick(w, PIPES)];
    if (count > PIPE_PAGES - c->pages) count = PIPE_PAGES - c->pages;
    if (count > 5) count = 5;
    if (count == 0 || w->is_child) return;
    count = uniform_run(b, from, count);
    if (b->page[from].flags & GUARDED || !(b->page[from].prot & PROT_READ)) return;
    struct iovec part = {b->base + from * PAGE, count * PAGE};
    w->calls++;
    ssize_t put = vmsplice(c->ends[1], &part, 1, 0);
    if (put != (ssize_t)(count * PAGE)) wrong(w, "vmsplice of %zu pages: %zd (%d)", count, put, errno);
    for (size_t i = from; i < from + count; i++) {
        c->stamp[c->pages++] = b->page[i].stamp;
        b->page[i].flags |= IN_PIPE;
    }
    note(w, slot_of(w, b), from, count, 0);
}

static void read_pipe(struct worker *w, struct channel *c, size_t pages) {
    for (size_t done = 0; done < pages * PAGE;) {
        ssize_t got = read(c->ends[0], w->buffer + done, pages * PAGE - done);
        if (got <= 0) wrong(w, "read of a pipe: %zd (%d)", got, errno);
        done += (size_t)got;
    }
    for (size_t i = 0; i < pages; i++) check_words(w, w->buffer + i * PAGE, c->stamp[i], "the pipe's", i);
    c->pages -= pages;
    memmove(c->stamp, c->stamp + pages, c->pages * sizeof *c->stamp);
}

static void do_pipe_out(struct worker *w, struct block *b, size_t from, size_t count) {
    size_t from_pipe = pick(w, PIPES);
    struct channel *c = &w->channel[from_pipe], *other = &w->channel[1 - from_pipe];
    if (c->pages == 0 || w->is_child) return;
    size_t pages = 1 + pick(w, c->pages);
    if (pick(w, 3) == 0 && other->pages + pages <= PIPE_PAGES) {
        w->calls++;
        ssize_t copied = tee(c->ends[0], other->ends[1], pages * PAGE, 0);
        if (copied != (ssize_t)(pages * PAGE)) wrong(w, "tee of %zu pages: %zd (%d)", pages, copied, errno);
        memcpy(other->stamp + other->pages, c->stamp, pages * sizeof *c->stamp);
        other->pages += pages;
    } else {
        read_pipe(w, c, pages);
    }
    note(w, slot_of(w, b), from, count, (long)pages);
}

/* System calls that read from and write to pages, which need not be there yet. */
static void do_system_call(struct worker *w, struct block *b, size_t from, size_t count) {
    unsigned char *at = b->base + from * PAGE;
    const struct page *page = &b->page[from];
    uint64_t words[64];
    long result = 0;
    w->calls++;
    switch (pick(w, 3)) {
    case 0: { /* the page is read */
        struct iovec here = {words, sizeof words}, there = {at, sizeof words};
        result = process_vm_readv(getpid(), &here, 1, &there, 1, 0);
        if (result == -1) result = -errno;
        break;
    }
    case 1: /* by write(2); into nothing */
        result = pwrite(memory_file, at, 8, (off_t)FILE_LENGTH * (off_t)PAGE);
        if (result == -1) result = -errno;
        break;
    default: /* written to, with what is there */
        if (!may_write(page)) return;
        result = pread(memory_file, at, PAGE, (off_t)(pick(w, FILE_LENGTH) * PAGE));
        if (result == -1) result = -errno;
        if (result != (long)PAGE) wrong(w, "pread into a page: %ld", result);
        memset(at, 0, PAGE);
        b->page[from].stamp = next_stamp(w);
        write_page(at, b->page[from].stamp);
    }
    note(w, slot_of(w, b), from, count, result);
}

/* ---- children ---- */

static void one_operation(struct worker *w, uint64_t chance);

static void check_all(struct worker *w) {
    for (int i = 0; i < SLOTS; i++)
        if (w->block[i].pages) check_block(w, &w->block[i]);
}

/* What fork(2) and madvise(2) say of the child's memory. */
static void inherit(struct worker *w) {
    for (int slot = 0; slot < SLOTS; slot++) {
        struct block *b = &w->block[slot];
        for (size_t i = 0; i < b->pages; i++) {
            struct page *page = &b->page[i];
            page->flags &= (uint8_t)~LOCKED;
            if (page->flags & WIPED) page->stamp = 0, page->flags &= (uint8_t)~(GUARDED | IN_PIPE);
        }
    }
}

static uint32_t shared_stamp[SLOTS];

static size_t page_for_child(const struct block *b) {
    size_t i = 0;
    while (i < b->pages && (!may_write(&b->page[i]) || b->page[i].flags & NOT_FORKED)) i++;
    return i;
}

__attribute__((noreturn)) static void child(struct worker *w, int answer, uint64_t chance) {
    w->is_child = 1;
    inherit(w);
    for (int slot = 0; slot < SLOTS; slot++) {
        struct block *b = &w->block[slot];
        for (size_t i = 0; i < b->pages; i++)
            if (!(b->page[i].flags & NOT_FORKED) && (b->page[i].stamp || i % 16 == 0)) check_page(w, b, i);
        /* Where a block is not forked, anything may be in the child, such as the library's own. */
        if (b->kind == SHARED && b->pages && page_for_child(b) < b->pages)
            write_page(b->base + page_for_child(b) * PAGE, shared_stamp[slot]);
        /* From now on the child keeps to what is its own, and there. */
        if (b->pages && (b->kind == SHARED || any(b, 0, b->pages, NOT_FORKED))) b->pages = 0, b->kind = ANONYMOUS;
    }
    for (uint64_t i = 0; i < chance % 12; i++) one_operation(w, chance * 977 + i);
    check_all(w);
    if (write(answer, &w->digest, sizeof w->digest) != sizeof w->digest) _exit(5);
    _exit(0);
}

static void do_fork(struct worker *w, struct block *b, size_t from, size_t count) {
    (void)from, (void)count;
    int answer[2];
    uint64_t chance = pick(w, 1 << 30), digest;
    if (w->is_child) return;
    if (threads > 1)
        for (int slot = 0; slot < SLOTS; slot++)
            if (w->block[slot].kind == SHARED) return;
    for (int slot = 0; slot < SLOTS; slot++) shared_stamp[slot] = next_stamp(w);
    holes_begin();
    CHECK(pipe(answer) == 0);
    w->calls++;
    pid_t pid = fork();
    if (pid == 0) {
        CHECK(pthread_rwlock_init(&mapping, NULL) == 0); /* its owner has another number now */
        child(w, answer[1], chance);
    }
    mapping_end();
    if (pid < 0) wrong(w, "fork: %d", errno);
    CHECK(close(answer[1]) == 0);
    ssize_t got = read(answer[0], &digest, sizeof digest);
    int status = wait_for(pid);
    CHECK(close(answer[0]) == 0);
    if (got != sizeof digest || status != 0) wrong(w, "the child ended with %d", status);
    mix(w, digest);
    for (int slot = 0; slot < SLOTS; slot++) {
        struct block *shared = &w->block[slot];
        if (shared->kind == SHARED && shared->pages && page_for_child(shared) < shared->pages)
            shared->page[page_for_child(shared)].stamp = shared_stamp[slot];
    }
    note(w, slot_of(w, b), 0, 0, status);
    check_all(w);
}

/* ---- episodes ---- */

static const struct operation {
    const char *name;
    void (*carry_out)(struct worker *, struct block *, size_t from, size_t count);
    unsigned weight;
} OPERATIONS[] = {
    {"munmap", do_unmap, 22},     {"punch", do_punch, 8},          {"fixed", do_replace, 8},  {"mprotect", do_protect, 12},
    {"write", do_write, 16},      {"discard", do_discard, 9},      {"free", do_free, 2},      {"advise", do_advise, 6},
    {"forkable", do_fork_advice, 3}, {"guard", do_guard, 3},       {"populate", do_populate, 2}, {"lock", do_lock, 3},
    {"mremap", do_move, 12},      {"errors", do_errors, 3},        {"ask", do_ask, 3},        {"splice", do_pipe_in, 6},
    {"unsplice", do_pipe_out, 5}, {"system call", do_system_call, 4},
};
enum { OPERATION_COUNT = sizeof OPERATIONS / sizeof *OPERATIONS };

static void one_operation(struct worker *w, uint64_t chance) {
    w->random = chance * 0x9E3779B97F4A7C15u + 1;
    (void)pick(w, 2);
    struct block *b = &w->block[pick(w, w->slots)];
    uint64_t weights = 0, at;
    for (int i = 0; i < OPERATION_COUNT; i++) weights += OPERATIONS[i].weight;
    int rare = pick(w, 200) == 0;
    at = pick(w, weights);
    if (rare) {
        w->name = "fork";
        if (!is_left_out(w->name)) do_fork(w, b, 0, 0);
        return;
    }
    if (b->kind == HEAP_PAGES && (b->pages == 0 || pick(w, 3) == 0)) {
        w->name = "break";
        if (!is_left_out(w->name)) do_break(w, b);
        return;
    }
    if (b->pages == 0) {
        w->name = "mmap";
        if (!is_left_out(w->name)) do_map(w, b);
        return;
    }
    const struct operation *operation = OPERATIONS;
    while (at >= operation->weight) at -= operation++->weight;
    w->name = operation->name;
    if (is_left_out(w->name)) return;
    size_t from = pick(w, b->pages), count = 1 + pick(w, b->pages - from);
    if (pick(w, 4) == 0) from = 0, count = b->pages;
    operation->carry_out(w, b, from, count);
}

/* Memory across the borders of the library's pools, which a program may ask for as any other. */
static void take_zones(struct worker *w) {
    w->name = "zone";
    for (size_t i = 0; i < (is_left_out("far") ? 1 : 2); i++) {
        struct block *b = &w->block[1 + i];
        void *wanted = (void *)(BORDERS[i] - ZONE_PAGES / 2 * PAGE);
        w->calls++;
        void *p = mmap(wanted, ZONE_PAGES * PAGE, RW, ANON | MAP_FIXED_NOREPLACE, -1, 0);
        note(w, 1 + (int)i, 0, ZONE_PAGES, p == wanted ? 0 : p == MAP_FAILED ? -errno : 1);
        if (p != wanted) continue;
        b->kind = ANONYMOUS;
        b->base = p;
        b->pages = ZONE_PAGES;
        b->is_patched = 1;
        fresh_pages(b, 0, ZONE_PAGES, RW, 0);
    }
}

static size_t locked_kib(void) {
    char text[4096], *line;
    int fd = open("/proc/self/status", O_RDONLY);
    ssize_t got = read(fd, text, sizeof text - 1);
    CHECK(got > 0 && close(fd) == 0);
    text[got] = 0;
    line = strstr(text, "VmLck:");
    CHECK(line);
    return strtoull(line + 6, NULL, 10);
}

/* The kernel's count of locked memory is what was locked; sooner or later: an engine that places frames locks a page of its own
 * for a moment, to move one to locked memory. */
static void check_locked(struct worker *w) {
    size_t locked = 0, found = 0;
    if (threads > 1 || reserved) return; /* huge pages of the kernel's pool are never counted */
    for (int slot = 0; slot < SLOTS; slot++)
        for (size_t i = 0; i < w->block[slot].pages; i++) locked += (w->block[slot].page[i].flags & LOCKED) != 0;
    for (int look = 0; look < 50 && (look == 0 || found != locked * 4); look++) {
        if (look) usleep(1000);
        found = locked_kib();
    }
    if (found != locked * 4)
        wrong(w, "locked are %zu KiB, not %zu", found, locked * 4);
}

static void give_up_all(struct worker *w) {
    w->name = "end";
    for (int slot = 0; slot < SLOTS; slot++) {
        struct block *b = &w->block[slot];
        if (b->pages == 0) continue;
        check_block(w, b);
        w->calls++;
        if (b->kind == HEAP_PAGES)
            CHECK(brk(heap_base) == 0);
        else if (munmap(b->base, b->pages * PAGE) != 0)
            wrong(w, "munmap: %d", errno);
        b->pages = 0;
    }
    for (int i = 0; i < PIPES; i++)
        if (w->channel[i].pages) read_pipe(w, &w->channel[i], w->channel[i].pages);
}

static int is_chosen(uint64_t operation) {
    return !only_some || (operation < sizeof only && only[operation]);
}

static void run_episode(struct worker *w, uint64_t episode) {
    uint64_t start = (seed * 1000003 + episode) * 4099 + (uint64_t)w->number * 131;
    w->episode = episode;
    w->digest = w->stamps = 0;
    w->stamps = (uint32_t)w->number << 26;
    for (int slot = 0; slot < SLOTS; slot++) w->block[slot].kind = ANONYMOUS;
    if (w->number == 0) w->block[0].kind = HEAP_PAGES;
    w->operation = 0;
    w->random = start * 0x9E3779B97F4A7C15u;
    /* With few blocks the pools are often empty, with many they are full of holes. */
    static const uint8_t slots[] = {2, 2, 3, 4, 8, SLOTS, SLOTS, SLOTS};
    w->slots = slots[pick(w, 8)];
    if (threads == 1 && pick(w, 3) == 0 && is_chosen(0) && !is_left_out("zone")) take_zones(w);
    for (w->operation = 1; w->operation <= operations; w->operation++)
        if (is_chosen(w->operation)) one_operation(w, start * 65537 + w->operation);
    if (w->number == 0) check_locked(w);
    give_up_all(w);
}

static void say_digest(const struct worker *w) {
    print(1, "%llu.%d %016llx\n", (unsigned long long)w->episode, w->number, (unsigned long long)w->digest);
}

static void *run_all(void *argument) {
    struct worker *w = argument;
    self = w;
    for (uint64_t episode = first_episode; episode < first_episode + episodes; episode++) {
        run_episode(w, episode);
        if (threads > 1) pthread_barrier_wait(&meeting);
        if (w->number == 0)
            for (long i = 0; i < threads; i++) say_digest(w + i);
        if (threads > 1) pthread_barrier_wait(&meeting);
    }
    return NULL;
}

static struct worker workers[4];

static void set_up(void) {
    struct sigaction act = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO | SA_NODEFER};
    CHECK(sigaction(SIGSEGV, &act, NULL) == 0 && sigaction(SIGBUS, &act, NULL) == 0);
    memory_file = memfd_create("pages", MFD_CLOEXEC);
    CHECK(memory_file >= 0);
    for (size_t i = 0; i < FILE_LENGTH; i++) {
        unsigned char page[PAGE] = {0};
        write_page(page, file_stamp(i));
        CHECK(pwrite(memory_file, page, PAGE, (off_t)(i * PAGE)) == (ssize_t)PAGE);
    }
    for (long i = 0; i < threads; i++) {
        workers[i].number = (int)i;
        for (int j = 0; j < PIPES; j++) CHECK(pipe(workers[i].channel[j].ends) == 0);
    }
    reserved = has_reserved_pages();
}

int main(int argc, char **argv) {
    CHECK(argc >= 6);
    seed = strtoull(argv[1], NULL, 0);
    first_episode = strtoull(argv[2], NULL, 0);
    episodes = strtoull(argv[3], NULL, 0);
    operations = strtoull(argv[4], NULL, 0);
    threads = atol(argv[5]);
    CHECK(threads >= 1 && threads <= 4);
    for (int i = 6; i < argc; i++) {
        if (strcmp(argv[i], "say") == 0) says = 1;
        if (strncmp(argv[i], "without=", 8) == 0) without[without_count++] = argv[i] + 8;
        if (strncmp(argv[i], "only=", 5) == 0) {
            only_some = 1;
            for (char *at = argv[i] + 5; *at;) {
                uint64_t operation = strtoull(at, &at, 10);
                if (operation < sizeof only) only[operation] = 1;
                if (*at) at++;
            }
        }
    }
    set_up();
    pthread_t running[4];
    CHECK(pthread_barrier_init(&meeting, NULL, (unsigned)threads) == 0);
    for (long i = 1; i < threads; i++) running[i] = start(run_all, &workers[i]);
    /* Nothing of this program uses the heap from here on. */
    heap_base = (unsigned char *)(((uintptr_t)sbrk(0) + PAGE - 1) & ~(PAGE - 1));
    CHECK(brk(heap_base) == 0);
    run_all(&workers[0]);
    for (long i = 1; i < threads; i++) CHECK(pthread_join(running[i], NULL) == 0);
    uint64_t calls = 0;
    for (long i = 0; i < threads; i++) calls += workers[i].calls;
    print(1, "calls %llu\n", (unsigned long long)calls);
    return 0;
}

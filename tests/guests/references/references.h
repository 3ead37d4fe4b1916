/* What the guests of references share. The kernel can go on using pages that the program has given back: in pipes, in
 * sockets, for direct input and output, in registered buffers. Whatever way the memory was given back, and however it is
 * handed out again, such a page must not be the program's again before the kernel has let go of it.
 *
 * A guest names a channel: how the kernel comes to use the pages, and what must be found there at the end. */
#ifndef REFERENCES_H
#define REFERENCES_H
#include "../guest.h"
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>

#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25 /* Linux 6.1 */
#endif
#define PART (16 * KIB)
#define MOST_PARTS 3

struct parts {
    size_t count;
    struct iovec part[MOST_PARTS];
};

/* `start`: the kernel uses all pages of the parts from now on, which hold the bytes of `seed`, or will receive them.
 * `finish`: it delivers, and has let go; what it delivers is checked against `seed`. */
struct channel {
    void (*start)(const struct parts *parts, unsigned seed);
    void (*finish)(const struct parts *parts, unsigned seed);
};

/* The whole of a small block; of a larger one both ends and the middle, across a border of 2 MiB where it has one. */
static inline struct parts parts_of(unsigned char *block, size_t bytes) {
    if (bytes <= MOST_PARTS * PART) return (struct parts){1, {{block, bytes}}};
    unsigned char *middle = (unsigned char *)(((uintptr_t)block + bytes / 2) & ~(2 * MIB - 1)) - PART / 2;
    if (middle < block + PART || middle + 2 * PART > block + bytes) middle = block + bytes / 2;
    return (struct parts){3, {{block, PART}, {middle, PART}, {block + bytes - PART, PART}}};
}

static inline void fill_parts(const struct parts *parts, unsigned seed) {
    for (size_t i = 0; i < parts->count; i++) fill(parts->part[i].iov_base, parts->part[i].iov_len, seed + (unsigned)i);
}

static inline size_t bytes_of(const struct parts *parts) {
    size_t bytes = 0;
    for (size_t i = 0; i < parts->count; i++) bytes += parts->part[i].iov_len;
    return bytes;
}

/* What is under test, for messages. */
static const char *way_now;
static size_t bytes_now;

/* Every page is written to. */
static inline void overwrite(unsigned char *p, size_t bytes) {
    for (size_t at = 0; at < bytes; at += PAGE) memset(p + at, 0xEE, at % (64 * KIB) ? 64 : PAGE);
}

static inline void check_overwritten(const unsigned char *p, size_t bytes) {
    for (size_t at = 0; at < bytes; at += PAGE)
        for (size_t i = 0; i < 64; i++)
            if (p[at + i] != 0xEE) FAIL("%s, %zu KiB: new page %zu was changed by somebody", way_now, bytes / KIB, at / PAGE);
}

static inline void read_all(int fd, void *into, size_t bytes) {
    for (size_t done = 0; done < bytes;) {
        ssize_t got = read(fd, (char *)into + done, bytes - done);
        if (got <= 0) FAIL("read of %zu bytes: %zd", bytes - done, got);
        done += (size_t)got;
    }
}

/* What the kernel delivers, in `got`, is what the parts held. */
static inline void check_parts(const struct parts *parts, const unsigned char *got, unsigned seed, const char *what) {
    for (size_t i = 0; i < parts->count; i++) {
        size_t bytes = parts->part[i].iov_len;
        for (size_t at = 0; at < bytes; at += PAGE)
            if (!holds_from(got + at, PAGE, seed + (unsigned)i, at))
                FAIL("%s, %zu KiB, %s: page %zu of part %zu has not the bytes that were there: it begins with %02x %02x",
                     way_now, bytes_now / KIB, what, at / PAGE, i, got[at], got[at + 1]);
        got += bytes;
    }
}

/* Ways to give memory back and to have some again. `again` returns NULL where a call was refused as documented. */
struct way {
    const char *name;
    unsigned char *(*get)(size_t bytes);
    unsigned char *(*again)(unsigned char *block, size_t bytes);
    void (*end)(unsigned char *block, size_t bytes);
};

static inline int refused(void) { return errno == ENOMEM && has_reserved_pages(); }

static inline void unmap(unsigned char *block, size_t bytes) { CHECK(munmap(block, bytes) == 0); }

static inline unsigned char *unmap_and_map(unsigned char *block, size_t bytes) {
    unmap(block, bytes);
    return map_anon(bytes);
}

/* ... page by page, from its end, and in one piece again. */
static inline unsigned char *unmap_in_pieces(unsigned char *block, size_t bytes) {
    for (size_t at = bytes; at > 0; at -= 8 * PAGE) unmap(block + at - 8 * PAGE, 8 * PAGE);
    return map_anon(bytes);
}

/* Part of it stays the program's: the middle and the end go, and are mapped again where they were. */
static inline unsigned char *unmap_part(unsigned char *block, size_t bytes) {
    unmap(block + PAGE, bytes - PAGE);
    unsigned char *p = mmap(block + PAGE, bytes - PAGE, RW, ANON | MAP_FIXED_NOREPLACE, -1, 0);
    if (p == MAP_FAILED && refused()) {
        unmap(block, PAGE);
        return map_anon(bytes);
    }
    CHECK(p == block + PAGE);
    if (madvise(block, PAGE, MADV_DONTNEED) != 0) {
        CHECK(refused());
        return NULL;
    }
    return block;
}

static inline unsigned char *raise_break(size_t bytes) {
    unsigned char *p = sbrk((intptr_t)bytes);
    if (p == (void *)-1 && refused()) return NULL; /* other threads, and the break had been lowered into a reserved page */
    CHECK(p != (void *)-1);
    return p;
}

static inline void lower_break(unsigned char *block, size_t bytes) {
    if (sbrk(0) == block && has_reserved_pages()) return; /* it is low already: raising it again was refused */
    CHECK(sbrk(0) == block + bytes && sbrk(-(intptr_t)bytes) == block + bytes);
}

static inline unsigned char *break_down_and_up(unsigned char *block, size_t bytes) {
    lower_break(block, bytes);
    unsigned char *p = raise_break(bytes);
    CHECK(p == NULL || p == block);
    return p;
}

static inline unsigned char *discard(unsigned char *block, size_t bytes) {
    if (madvise(block, bytes, MADV_DONTNEED) != 0) {
        CHECK(refused());
        return NULL;
    }
    return block;
}

static inline unsigned char *map_over(unsigned char *block, size_t bytes) {
    void *p = mmap(block, bytes, RW, ANON | MAP_FIXED, -1, 0);
    if (p == MAP_FAILED && refused()) return NULL;
    CHECK(p == block);
    return block;
}

/* glibc's arenas: 64 MiB without access, opened as they grow; what is trimmed is discarded, closed, or mapped over. */
static inline unsigned char *arena(size_t bytes) {
    unsigned char *p = mmap(NULL, 64 * MIB, PROT_NONE, ANON | MAP_NORESERVE, -1, 0);
    CHECK(p != MAP_FAILED && mprotect(p, bytes, RW) == 0);
    return p;
}

static inline unsigned char *trim_arena(unsigned char *block, size_t bytes) {
    if (discard(block, bytes) == NULL) return NULL;
    if (mprotect(block, bytes, PROT_NONE) != 0 && refused()) return NULL;
    if (mprotect(block, bytes, RW) != 0 && refused()) return NULL;
    return block;
}

static inline unsigned char *close_arena(unsigned char *block, size_t bytes) {
    void *p = mmap(block, bytes, PROT_NONE, ANON | MAP_FIXED, -1, 0);
    if (p == MAP_FAILED && refused()) return NULL;
    CHECK(p == block && mprotect(block, bytes, RW) == 0);
    return block;
}

static inline void end_arena(unsigned char *block, size_t bytes) {
    (void)bytes;
    unmap(block, 64 * MIB);
}

static inline unsigned char *shrink_and_grow(unsigned char *block, size_t bytes) {
    CHECK(mremap(block, bytes, PAGE, 0) == block);
    unsigned char *p = mremap(block, PAGE, bytes, MREMAP_MAYMOVE);
    CHECK(p != MAP_FAILED);
    return discard(p, PAGE) /* the page that stayed */;
}

/* The block goes elsewhere; what is mapped where it was is another. */
static inline unsigned char *move_away(unsigned char *block, size_t bytes) {
    unsigned char *elsewhere = map_anon(bytes);
    CHECK(mremap(block, bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, elsewhere) == elsewhere);
    unsigned char *p = mmap(block, bytes, RW, ANON | MAP_FIXED_NOREPLACE, -1, 0);
    CHECK(p == block);
    CHECK(munmap(elsewhere, bytes) == 0);
    return block;
}

static inline unsigned char *move_over(unsigned char *block, size_t bytes) {
    unsigned char *other = map_anon(bytes);
    CHECK(mremap(other, bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, block) == block);
    return block;
}

static inline unsigned char *move_contents(unsigned char *block, size_t bytes) {
    unsigned char *p = mremap(block, bytes, bytes, MREMAP_MAYMOVE | MREMAP_DONTUNMAP, NULL);
    if (p == MAP_FAILED && has_reserved_pages()) return NULL;
    CHECK(p != MAP_FAILED && munmap(p, bytes) == 0);
    return block;
}

/* A child that shares the pages comes and goes in between. */
static inline unsigned char *fork_between(unsigned char *block, size_t bytes) {
    pid_t child = fork();
    if (child == 0) {
        CHECK(munmap(block, bytes) == 0);
        unsigned char *p = map_anon(bytes);
        overwrite(p, bytes);
        _exit(0);
    }
    CHECK(wait_for(child) == 0);
    return unmap_and_map(block, bytes);
}

static const struct way WAYS[] = {
    {"munmap", map_anon, unmap_and_map, unmap},
    {"munmap in pieces", map_anon, unmap_in_pieces, unmap},
    {"munmap of a part", map_anon, unmap_part, unmap},
    {"sbrk", raise_break, break_down_and_up, lower_break},
    {"MADV_DONTNEED", map_anon, discard, unmap},
    {"MADV_DONTNEED in the heap", raise_break, discard, lower_break},
    {"MAP_FIXED", map_anon, map_over, unmap},
    {"arena trimmed", arena, trim_arena, end_arena},
    {"arena closed", arena, close_arena, end_arena},
    {"mremap, smaller and larger", map_anon, shrink_and_grow, unmap},
    {"mremap, away", map_anon, move_away, unmap},
    {"mremap, over", map_anon, move_over, unmap},
    {"MREMAP_DONTUNMAP", map_anon, move_contents, unmap},
    {"fork", map_anon, fork_between, unmap},
};
enum { WAY_COUNT = sizeof WAYS / sizeof *WAYS };

static const size_t SIZES[] = {32 * KIB, 2 * MIB, 5 * MIB};

/* Memory comes and goes: what was given back has every occasion to be handed out again. */
static inline void stir(size_t bytes) {
    unsigned char *p[4];
    for (size_t i = 0; i < 4; i++) overwrite(p[i] = map_anon(bytes), bytes);
    for (size_t i = 0; i < 4; i++) unmap(p[i], bytes);
}

static inline void one_round(const struct channel *channel, const struct way *way, size_t bytes, unsigned seed) {
    way_now = way->name;
    bytes_now = bytes;
    unsigned char *block = way->get(bytes);
    if (block == NULL) return;
    if (!all_zero(block, bytes)) FAIL("%s: memory of %zu KiB is not zero", way->name, bytes / KIB);
    overwrite(block, bytes);
    struct parts parts = parts_of(block, bytes);
    fill_parts(&parts, seed);
    channel->start(&parts, seed);
    unsigned char *again = way->again(block, bytes);
    if (again) {
        if (!all_zero(again, bytes)) FAIL("%s: new memory of %zu KiB is not zero", way->name, bytes / KIB);
        overwrite(again, bytes);
        stir(bytes < MIB ? MIB / 2 : bytes / 2);
    }
    channel->finish(&parts, seed);
    if (again) check_overwritten(again, bytes);
    way->end(again ? again : block, bytes);
}

static inline void every_way(const struct channel *channel, int rounds) {
    stir(2 * MIB);
    for (int round = 0; round < rounds; round++)
        for (size_t way = 0; way < WAY_COUNT; way++)
            for (size_t size = 0; size < sizeof SIZES / sizeof *SIZES; size++)
                one_round(channel, &WAYS[way], SIZES[size], (unsigned)(round * 1000 + (int)way * 10 + (int)size + 1));
}

/* Changes after which a block is still the program's: what the kernel reads into its pages must be found in it. `start`
 * and `finish` of the channel are a read that is under way; each of the changes returns where the block is then. */
struct change {
    const char *name;
    unsigned char *(*carry_out)(unsigned char *block, size_t bytes);
};

static inline unsigned char *move_to_a_place(unsigned char *block, size_t bytes) {
    unsigned char *place = map_anon(bytes);
    CHECK(munmap(place, bytes) == 0);
    stir(MIB / 2);
    void *p = mremap(block, bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, place + 64 * MIB);
    if (p == MAP_FAILED && refused()) return NULL;
    CHECK(p == place + 64 * MIB);
    return p;
}

static inline unsigned char *move_by_growing(unsigned char *block, size_t bytes) {
    unsigned char *p = mremap(block, bytes, 8 * bytes, MREMAP_MAYMOVE);
    if (p == MAP_FAILED && refused()) return NULL;
    CHECK(p != MAP_FAILED && munmap(p + bytes, 7 * bytes) == 0);
    return p;
}

static inline unsigned char *move_and_leave(unsigned char *block, size_t bytes) {
    unsigned char *p = mremap(block, bytes, bytes, MREMAP_MAYMOVE | MREMAP_DONTUNMAP, NULL);
    if (p == MAP_FAILED && has_reserved_pages()) return NULL;
    CHECK(p != MAP_FAILED && munmap(block, bytes) == 0);
    return p;
}

static inline unsigned char *protect_parts(unsigned char *block, size_t bytes) {
    if (mprotect(block + PAGE, bytes / 2, PROT_NONE) != 0 && refused()) return NULL;
    if (mprotect(block + 2 * PAGE, PAGE, PROT_READ) != 0 && refused()) return NULL;
    if (mprotect(block, bytes, RW) != 0 && refused()) return NULL;
    return block;
}

static inline unsigned char *advise_all(unsigned char *block, size_t bytes) {
    static const int advice[] = {MADV_NOHUGEPAGE, MADV_HUGEPAGE, MADV_COLLAPSE, MADV_RANDOM, MADV_COLD, MADV_PAGEOUT};
    /* The last three the kernel refuses for its reserved pages, which then become others. */
    for (size_t i = 0; i < (has_reserved_pages() ? 3 : sizeof advice / sizeof *advice); i++) (void)madvise(block, bytes, advice[i]);
    CHECK(mlock(block, bytes) == 0 || errno == ENOMEM || errno == EPERM);
    CHECK(munlock(block, bytes) == 0);
    return block;
}

static inline unsigned char *fork_and_write(unsigned char *block, size_t bytes) {
    pid_t child = fork();
    if (child == 0) {
        overwrite(block, bytes);
        _exit(0);
    }
    CHECK(wait_for(child) == 0);
    return block;
}

static const struct change CHANGES[] = {
    {"moved to a place of its own", move_to_a_place},
    {"moved by growing", move_by_growing},
    {"moved by MREMAP_DONTUNMAP", move_and_leave},
    {"protected in parts", protect_parts},
    {"advised", advise_all},
    {"forked", fork_and_write},
};

/* The channel reads the bytes of `seed` into the parts: `start` begins, `finish` ends it. */
static inline void every_change(const struct channel *channel) {
    for (size_t change = 0; change < sizeof CHANGES / sizeof *CHANGES; change++)
        for (size_t size = 0; size < sizeof SIZES / sizeof *SIZES; size++) {
            size_t bytes = bytes_now = SIZES[size];
            way_now = CHANGES[change].name;
            /* These copy what lies in the kernel's reserved pages (docs/preload.md). */
            if (has_reserved_pages() && (strncmp(way_now, "moved", 5) == 0 || strncmp(way_now, "protected", 9) == 0)) continue;
            unsigned seed = 77 + (unsigned)(change * 10 + size);
            unsigned char *block = map_anon(bytes);
            overwrite(block, bytes);
            struct parts parts = parts_of(block, bytes);
            channel->start(&parts, seed);
            unsigned char *now = CHANGES[change].carry_out(block, bytes);
            channel->finish(&parts, seed);
            if (now) {
                for (size_t i = 0; i < parts.count; i++) {
                    size_t at = (size_t)((unsigned char *)parts.part[i].iov_base - block), length = parts.part[i].iov_len;
                    if (!holds(now + at, length, seed + (unsigned)i))
                        FAIL("%s, %zu KiB: part %zu has not what was read into it", way_now, bytes / KIB, i);
                }
            }
            unmap(now ? now : block, bytes);
        }
}

#endif

/* What the guests of frame placement share: each looks up its own frames in /proc/self/pagemap and compares them with
 * what the policy promises, without a word from the library. The test tells the policy by the environment:
 *
 *   FRAMES_STRATEGY  page-coloring | modulo | bin-hopping | random; unset: nothing is expected (natively)
 *   FRAMES_COLOURS   number of colours
 *   FRAMES_MASKS     bit i of a colour is the parity of frame & mask i (hexadecimal, comma separated); unset: frame % colours
 *   FRAMES_PATTERN   modulo: colours of virtual pages 0, 1, 2 …, starting over at the end (comma separated)
 *   FRAMES_HASH      page-coloring: "pid" shifts the colours by a hash of the process id
 *   FRAMES_SEED      random: the seed
 *   FRAMES_PREFAULT  pages come when memory is mapped, before they are touched
 */
#ifndef FRAMES_H
#define FRAMES_H
#include "../guest.h"
#include <sys/syscall.h>

enum { MOST_VALUES = 256 };

static struct {
    int known, by_address, periodic, by_pid, is_random;
    uint64_t colours, seed, mask[MOST_VALUES], pattern[MOST_VALUES];
    size_t masks, patterns;
} policy;

static size_t numbers(const char *text, uint64_t *into, int base) {
    size_t count = 0;
    while (text && *text && count < MOST_VALUES) {
        char *end;
        into[count++] = strtoull(text, &end, base);
        text = *end ? end + 1 : end;
    }
    return count;
}

__attribute__((constructor, unused)) static void read_policy(void) {
    const char *strategy = getenv("FRAMES_STRATEGY"), *colours = getenv("FRAMES_COLOURS");
    const char *hash = getenv("FRAMES_HASH"), *seed = getenv("FRAMES_SEED");
    if (!strategy) return;
    policy.known = 1;
    policy.colours = colours ? strtoull(colours, NULL, 10) : 0;
    CHECK(policy.colours > 0);
    policy.masks = numbers(getenv("FRAMES_MASKS"), policy.mask, 16);
    policy.patterns = numbers(getenv("FRAMES_PATTERN"), policy.pattern, 10);
    int modulo = strcmp(strategy, "modulo") == 0;
    CHECK(!modulo || policy.patterns > 0);
    policy.by_pid = hash && strcmp(hash, "pid") == 0;
    policy.seed = seed ? strtoull(seed, NULL, 10) : 0;
    policy.is_random = strcmp(strategy, "random") == 0;
    policy.periodic = modulo || strcmp(strategy, "page-coloring") == 0;
    policy.by_address = policy.periodic || policy.is_random;
}

/* The finaliser of SplitMix64 (Steele, Lea, Flood 2014), and its output reduced to a colour. */
__attribute__((unused)) static uint64_t mixed(uint64_t value) {
    value += 0x9e3779b97f4a7c15u;
    value = (value ^ value >> 30) * 0xbf58476d1ce4e5b9u;
    value = (value ^ value >> 27) * 0x94d049bb133111ebu;
    return value ^ value >> 31;
}

__attribute__((unused)) static uint64_t mixed_colour(uint64_t value) {
    return (uint64_t)((unsigned __int128)mixed(value) * policy.colours >> 64);
}

__attribute__((unused)) static uint64_t colour_of(uint64_t frame) {
    if (policy.masks == 0) return frame % policy.colours;
    uint64_t colour = 0;
    for (size_t i = 0; i < policy.masks; i++)
        colour |= (uint64_t)__builtin_parityll(frame & policy.mask[i]) << i;
    return colour;
}

/* For strategies by address: the colour that virtual page `vpn` is promised. */
__attribute__((unused)) static uint64_t wanted_colour(uint64_t vpn) {
    if (policy.patterns) return policy.pattern[vpn % policy.patterns];
    if (policy.is_random) return mixed_colour(mixed(policy.seed) ^ vpn);
    return (vpn + (policy.by_pid ? mixed_colour((uint64_t)getpid()) : 0)) % policy.colours;
}

/* Words of /proc/self/pagemap for `count` pages from `at`. Opened anew: a forked child has its own. */
__attribute__((unused)) static void read_pagemap(const void *at, size_t count, uint64_t *words) {
    int fd = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
    if (fd < 0) FAIL("open of pagemap");
    size_t bytes = count * sizeof *words;
    ssize_t got = pread(fd, words, bytes, (off_t)((uintptr_t)at / PAGE * sizeof *words));
    if (got != (ssize_t)bytes) FAIL("pagemap of %zu pages at %p: %zd bytes", count, at, got);
    CHECK(close(fd) == 0);
}

static inline int is_present(uint64_t word) { return (int)(word >> 63); }
static inline int is_elsewhere(uint64_t word) { return (int)(word >> 62) == 1; } /* swapped out, or just being moved */
static inline uint64_t frame_in(uint64_t word) { return word & (((uint64_t)1 << 55) - 1); }

/* The frame of the page at `at`; 0 where there is none, or where this process may not know. */
__attribute__((unused)) static uint64_t frame_of(const void *at) {
    uint64_t word;
    read_pagemap(at, 1, &word);
    return is_present(word) ? frame_in(word) : 0;
}

__attribute__((unused)) static size_t resident_pages(const void *at, size_t count) {
    static __thread uint64_t words[512];
    size_t resident = 0;
    for (size_t done = 0, step; done < count; done += step) {
        step = count - done < 512 ? count - done : 512;
        read_pagemap((const unsigned char *)at + done * PAGE, step, words);
        for (size_t i = 0; i < step; i++) resident += (size_t)is_present(words[i]);
    }
    return resident;
}

/* Every page of the range is there and, where the colour follows from the address, has the colour promised. */
#define CHECK_PLACED(at, count) check_placed_(at, count, policy.by_address, __FILE__, __LINE__)
/* The same after an mremap that chose the place itself: no place keeps the promise where colours never repeat. */
#define CHECK_MOVED(at, count) check_placed_(at, count, policy.periodic, __FILE__, __LINE__)
__attribute__((unused)) static void check_placed_(const void *at, size_t count, int promised, const char *file, int line) {
    static __thread uint64_t words[512];
    uint64_t first = (uintptr_t)at / PAGE, wrong = 0, missing = 0;
    char example[160] = "";
    if (!policy.known) return;
    for (uint64_t i = 0; i < count; i++) {
        if (i % 512 == 0) {
            size_t left = count - i;
            read_pagemap((const void *)((first + i) * PAGE), left < 512 ? left : 512, words);
        }
        uint64_t word = words[i % 512], frame;
        for (int tries = 0; is_elsewhere(word) && tries < 100; tries++) {
            (void)*(const volatile unsigned char *)((first + i) * PAGE);
            read_pagemap((const void *)((first + i) * PAGE), 1, &word);
        }
        frame = frame_in(word);
        if (!is_present(word) || frame == 0) {
            missing++;
            continue;
        }
        if (!promised || colour_of(frame) == wanted_colour(first + i)) continue;
        if (wrong++ == 0)
            snprintf(example, sizeof example, "; page %zu, vpn %#zx: frame %#zx has colour %zu, promised %zu", (size_t)i,
                     (size_t)(first + i), (size_t)frame, (size_t)colour_of(frame), (size_t)wanted_colour(first + i));
    }
    if (wrong || missing) {
        dprintf(2, "%s:%d: of %zu pages at %p: %zu wrong, %zu missing%s\n", file, line, count, at, (size_t)wrong,
                (size_t)missing, example);
        _exit(1);
    }
}

/* One word into each page, and back: `tag` tells mappings apart. */
static inline void write_tag(unsigned char *p, size_t page, uint64_t tag) {
    *(volatile uint64_t *)(p + page * PAGE + page % 500 * 8) = tag + page;
}

__attribute__((unused)) static void write_tags(unsigned char *p, size_t pages, uint64_t tag) {
    for (size_t i = 0; i < pages; i++) write_tag(p, i, tag);
}

/* The tags are there, and everything else in the pages is zero. `from`: index that the first page had when written. */
__attribute__((unused)) static void check_tags_from(const unsigned char *p, size_t pages, uint64_t tag, size_t from) {
    static const unsigned char zeros[PAGE];
    for (size_t i = 0; i < pages; i++) {
        const unsigned char *page = p + i * PAGE;
        size_t at = (from + i) % 500 * 8;
        uint64_t got;
        memcpy(&got, page + at, sizeof got);
        if (got != tag + from + i) FAIL("page %zu of %p holds %zx, not %zx", i, p, (size_t)got, (size_t)(tag + from + i));
        if (memcmp(page, zeros, at) || memcmp(page + at + 8, zeros, PAGE - at - 8))
            FAIL("page %zu of %p is not zero beside its tag", i, p);
    }
}

__attribute__((unused)) static void check_tags(const unsigned char *p, size_t pages, uint64_t tag) {
    check_tags_from(p, pages, tag, 0);
}

/* A mapping of up to 70 pages comes, is written to, read, as promised, and goes. */
__attribute__((unused)) static void come_and_go(uint64_t id, uint64_t *seed) {
    size_t own = 1 + random_next(seed) % 70;
    unsigned char *p = map_anon(own * PAGE);
    write_tags(p, own, id << 32);
    check_tags(p, own, id << 32);
    CHECK_PLACED(p, own);
    CHECK(munmap(p, own * PAGE) == 0);
}

#endif

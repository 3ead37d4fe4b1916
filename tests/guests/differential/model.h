/* What the fuzzer knows: its blocks, page by page, and its source of decisions. */
#ifndef MODEL_H
#define MODEL_H
#include "../guest.h"

enum { SLOTS = 16, MOST_PAGES = 1200, FILE_LENGTH = 2048, PIPES = 2, PIPE_PAGES = 16 };

enum kind { ANONYMOUS, SHARED, FILE_PAGES, HEAP_PAGES };

enum { GUARDED = 1, NOT_FORKED = 2, WIPED = 4, LOCKED = 8, IN_PIPE = 16 };

struct page {
    uint32_t stamp; /* what is written all over it; 0: it is zero */
    uint8_t prot, flags;
};

struct block {
    unsigned char *base;
    size_t pages; /* 0: there is no such block */
    size_t file_page;
    enum kind kind;
    int is_patched; /* the kernel may have it as more than one mapping */
    struct page page[MOST_PAGES];
};

/* Pages that the kernel has in a pipe, and what the reader must get. */
struct channel {
    int ends[2];
    size_t pages;
    uint32_t stamp[PIPE_PAGES];
};

struct worker {
    int number, is_child;
    const char *name; /* of the operation */
    uint64_t episode, operation, random, digest, calls, slots;
    uint32_t stamps;
    struct block block[SLOTS];
    struct channel channel[PIPES];
    unsigned char buffer[PIPE_PAGES * PAGE];
};

static inline uint64_t pick(struct worker *w, uint64_t below) { return (random_next(&w->random) >> 11) % below; }

static inline int slot_of(const struct worker *w, const struct block *b) { return (int)(b - w->block); }

static inline struct block *free_slot(struct worker *w) {
    for (int i = 0; i < SLOTS; i++)
        if (w->block[i].pages == 0 && w->block[i].kind != HEAP_PAGES) return &w->block[i];
    return NULL;
}

static inline uint32_t next_stamp(struct worker *w) { return ++w->stamps; }

/* Pages of the file hold these; they are written nowhere else. */
static inline uint32_t file_stamp(size_t page) { return 0xF0000000u + (uint32_t)page; }

static inline uint32_t first_stamp(const struct block *b, size_t i) {
    return b->kind == FILE_PAGES ? file_stamp(b->file_page + i) : 0;
}

static inline void fresh_pages(struct block *b, size_t from, size_t count, int prot, int flags) {
    for (size_t i = from; i < from + count; i++)
        b->page[i] = (struct page){first_stamp(b, i), (uint8_t)prot, (uint8_t)flags};
}

static inline int alike(const struct page *a, const struct page *b) {
    return a->prot == b->prot && ((a->flags ^ b->flags) & ~IN_PIPE) == 0;
}

/* How many of the `count` pages from `from` on are as the first of them. */
static inline size_t uniform_run(const struct block *b, size_t from, size_t count) {
    size_t run = 1;
    while (run < count && alike(&b->page[from], &b->page[from + run])) run++;
    return run;
}

static inline int uniform(const struct block *b, size_t from, size_t count) {
    return uniform_run(b, from, count) >= count;
}

static inline int any(const struct block *b, size_t from, size_t count, int flags) {
    for (size_t i = from; i < from + count; i++)
        if (b->page[i].flags & flags) return 1;
    return 0;
}

#endif

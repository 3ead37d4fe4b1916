/* Random mmap, munmap, mprotect, mremap, madvise, MAP_FIXED and sbrk against a shadow of what must be there.
 * Arguments: seed, operations, threads. Each thread owns the pages it was given; the shadow knows the protection
 * and the stamp (0 = zero) of every one of them. */
#include "guest.h"

enum { REGIONS = 24, MOST_PAGES = 1700 };

struct region {
    unsigned char *base;
    size_t pages;
    unsigned stamp[MOST_PAGES];      /* what every 8th word of the page must hold; 0: the whole page is zero */
    unsigned char gone[MOST_PAGES];  /* unmapped */
    unsigned char prot[MOST_PAGES];
};

struct worker {
    uint64_t seed;
    long operations;
    unsigned next_stamp;
    struct region regions[REGIONS];
};

static uint64_t pick(struct worker *w, uint64_t below) { return random_next(&w->seed) % below; }

static void stamp_page(unsigned char *page, unsigned stamp) {
    for (size_t i = 0; i < PAGE; i += 512) memcpy(page + i, &stamp, sizeof stamp);
}

static void check_page(const struct region *r, size_t i, const char *after) {
    if (r->gone[i] || !(r->prot[i] & PROT_READ)) return;
    const unsigned char *page = r->base + i * PAGE;
    if (r->stamp[i] == 0) {
        if (!all_zero(page, PAGE)) FAIL("after %s: page %zu of %p (%zu pages) is not zero", after, i, r->base, r->pages);
        return;
    }
    for (size_t at = 0; at < PAGE; at += 512) {
        unsigned got;
        memcpy(&got, page + at, sizeof got);
        if (got != r->stamp[i])
            FAIL("after %s: page %zu of %p (%zu pages) holds %u, not %u", after, i, r->base, r->pages, got, r->stamp[i]);
    }
}

static void check_region(const struct region *r, const char *after) {
    for (size_t i = 0; i < r->pages; i++) check_page(r, i, after);
}

static size_t some_pages(struct worker *w) {
    static const size_t typical[] = {1, 2, 33, 128, 511, 512, 513, 1024, 1100};
    return pick(w, 2) ? typical[pick(w, 9)] : 1 + pick(w, 200);
}

/* No loop over the three arrays: GCC 12 at -O1 drops the calls of it (-fno-ipa-modref brings them back). */
static void set_range(struct region *r, size_t from, size_t count, unsigned char prot) {
    memset(r->stamp + from, 0, count * sizeof *r->stamp);
    memset(r->gone + from, 0, count);
    memset(r->prot + from, prot, count);
}

static void do_map(struct worker *w, struct region *r) {
    size_t pages = some_pages(w);
    unsigned char *p = mmap(NULL, pages * PAGE, RW, ANON | (pick(w, 8) ? 0 : MAP_NORESERVE), -1, 0);
    if (p == MAP_FAILED) FAIL("mmap of %zu pages", pages);
    CHECK(is_page_aligned(p) && (uintptr_t)p > 65536);
    r->base = p;
    r->pages = pages;
    set_range(r, 0, pages, RW);
    check_region(r, "mmap");
}

/* Holes may belong to somebody else by now: only what is still ours is unmapped, run by run. */
static void unmap_own(struct region *r, size_t from, size_t count) {
    for (size_t i = from; i < from + count;) {
        size_t run = i;
        while (run < from + count && !r->gone[run]) run++;
        if (run > i && munmap(r->base + i * PAGE, (run - i) * PAGE))
            FAIL("munmap of %zu pages at %p", run - i, r->base + i * PAGE);
        i = run + 1;
    }
}

static void do_unmap_all(struct region *r) {
    unmap_own(r, 0, r->pages);
    r->pages = 0;
}

static void do_unmap_part(struct worker *w, struct region *r, size_t from, size_t count) {
    unmap_own(r, from, count);
    if (from == 0 && count < r->pages && pick(w, 2)) { /* the front goes for good */
        r->base += count * PAGE;
        r->pages -= count;
        memmove(r->stamp, r->stamp + count, r->pages * sizeof *r->stamp);
        memmove(r->gone, r->gone + count, r->pages);
        memmove(r->prot, r->prot + count, r->pages);
    } else if (from + count == r->pages) {
        r->pages = from; /* may become 0: then the region is free */
    } else {
        memset(r->gone + from, 1, count);
    }
}

/* Not for the reason the kernel would have: part of a reserved page, while other threads run. */
static int was_refused(void) { return errno == ENOMEM && has_reserved_pages(); }

/* Another thread may have taken a hole of ours: NOREPLACE says so, and then the hole stays one. */
static void do_refill(struct region *r, size_t from, size_t count) {
    for (size_t i = from; i < from + count; i++) {
        if (!r->gone[i]) continue;
        void *at = r->base + i * PAGE;
        void *p = mmap(at, PAGE, RW, ANON | MAP_FIXED_NOREPLACE, -1, 0);
        if (p == MAP_FAILED) {
            CHECK(errno == EEXIST || was_refused());
            continue;
        }
        CHECK(p == at);
        set_range(r, i, 1, RW);
        check_page(r, i, "refill");
    }
}

static int is_whole(const struct region *r, size_t from, size_t count) {
    for (size_t i = from; i < from + count; i++)
        if (r->gone[i]) return 0;
    return 1;
}

static int is_uniform(const struct region *r) {
    for (size_t i = 0; i < r->pages; i++)
        if (r->gone[i] || r->prot[i] != r->prot[0]) return 0;
    return 1;
}

static void do_remap(struct worker *w, struct region *r) {
    size_t pages = some_pages(w);
    int flags = pick(w, 4) ? MREMAP_MAYMOVE : 0;
    unsigned char *p = mremap(r->base, r->pages * PAGE, pages * PAGE, flags);
    if (p == MAP_FAILED) {
        /* EFAULT: the kernel grows one mapping only, and ours may be several beside each other. */
        CHECK((errno == ENOMEM && !flags) || errno == EFAULT);
        return;
    }
    if (pages > r->pages) set_range(r, r->pages, pages - r->pages, r->prot[0]);
    r->base = p;
    r->pages = pages;
    check_region(r, "mremap");
}

static void do_protect(struct worker *w, struct region *r, size_t from, size_t count) {
    static const unsigned char kinds[] = {PROT_NONE, PROT_READ, RW, RW};
    unsigned char prot = kinds[pick(w, 4)];
    if (mprotect(r->base + from * PAGE, count * PAGE, prot) != 0) {
        CHECK(was_refused());
        return;
    }
    memset(r->prot + from, prot, count);
}

static void do_replace(struct region *r, size_t from, size_t count) {
    void *at = r->base + from * PAGE, *p = mmap(at, count * PAGE, RW, ANON | MAP_FIXED, -1, 0);
    if (p == MAP_FAILED) {
        CHECK(was_refused());
        return;
    }
    CHECK(p == at);
    set_range(r, from, count, RW);
}

static void do_write(struct worker *w, struct region *r, size_t from, size_t count) {
    for (size_t i = from; i < from + count; i++) {
        if (r->gone[i] || !(r->prot[i] & PROT_WRITE)) continue;
        check_page(r, i, "write");
        r->stamp[i] = ++w->next_stamp;
        stamp_page(r->base + i * PAGE, r->stamp[i]);
    }
}

static void step(struct worker *w) {
    struct region *r = &w->regions[pick(w, REGIONS)];
    if (r->pages == 0) {
        do_map(w, r);
        return;
    }
    size_t from = pick(w, r->pages), count = 1 + pick(w, r->pages - from);
    int whole = is_whole(r, from, count);
    switch (pick(w, 12)) {
    case 0: do_unmap_all(r); break;
    case 1: do_unmap_part(w, r, from, count); break;
    case 2: do_refill(r, from, count); break;
    case 3: if (whole) do_protect(w, r, from, count); break;
    case 4:
    case 5: if (is_uniform(r)) do_remap(w, r); break;
    case 6:
        if (!whole) break;
        if (!is_done(madvise(r->base + from * PAGE, count * PAGE, MADV_DONTNEED))) break;
        memset(r->stamp + from, 0, count * sizeof *r->stamp);
        break;
    case 7:
        if (!whole) break;
        do_replace(r, from, count);
        break;
    default: do_write(w, r, from, count); break;
    }
    if (r->pages) check_region(r, "the last operation");
}

static void *work(void *argument) {
    struct worker *w = argument;
    for (long i = 0; i < w->operations; i++) {
        step(w);
        if (i % 64 == 0) churn(w->seed, 30, 200 * KIB);
    }
    for (int i = 0; i < REGIONS; i++) {
        check_region(&w->regions[i], "the end");
        do_unmap_all(&w->regions[i]);
    }
    return NULL;
}

int main(int argc, char **argv) {
    uint64_t seed = argc > 1 ? strtoull(argv[1], NULL, 0) : 1;
    long operations = argc > 2 ? atol(argv[2]) : 1500, threads = argc > 3 ? atol(argv[3]) : 1;
    pthread_t running[16];
    CHECK(threads >= 1 && threads <= 16);
    for (long i = 0; i < threads; i++) {
        struct worker *w = calloc(1, sizeof *w);
        CHECK(w);
        w->seed = seed * 1000003 + (uint64_t)i + 1;
        w->operations = operations;
        w->next_stamp = (unsigned)i << 28;
        if (threads == 1)
            work(w);
        else
            running[i] = start(work, w);
    }
    for (long i = 0; i < threads && threads > 1; i++) CHECK(pthread_join(running[i], NULL) == 0);
    return ok();
}

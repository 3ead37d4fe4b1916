/* mremap of several mappings of different kinds to a given place moves all of them (Linux 6.17), or none.
 * Regression: where frames are placed, half of them had moved when the call failed; and a block that the kernel has as
 * several mappings, because its pages have different sizes, could not grow or move where no file could be opened. */
#include "guest.h"
#include <sys/resource.h>

enum { PAGES = 8 };

static unsigned char *room;

static void touch_all(unsigned char *p) {
    for (size_t i = 0; i < PAGES; i++) p[i * PAGE] = (unsigned char)(i + 1);
}

/* Whether all pages lie at `to`; fails if only some do. */
static int moved(unsigned char *from, unsigned char *to, void *result) {
    unsigned char there[1];
    if (result == MAP_FAILED) {
        CHECK(errno == EFAULT);
        for (size_t i = 0; i < PAGES; i++) CHECK(from[i * PAGE] == i + 1);
        return 0;
    }
    CHECK(result == to);
    for (size_t i = 0; i < PAGES; i++) CHECK(to[i * PAGE] == i + 1);
    for (size_t i = 0; i < PAGES; i++) CHECK(mincore(from + i * PAGE, PAGE, there) == -1 && errno == ENOMEM);
    return 1;
}

/* One mapping of the program's, over tiles of all sizes, without a free descriptor. */
static void without_files(void) {
    const struct rlimit none = {3, 3};
    const size_t length = 40 * MIB;
    CHECK(setrlimit(RLIMIT_NOFILE, &none) == 0);
    unsigned char *p = map_anon(length), *barrier = map_anon(PAGE), *to = map_anon(4 * length);
    for (size_t i = 0; i < length; i += MIB) p[i] = (unsigned char)(i / MIB + 1);
    p = mremap(p, length, 2 * length, MREMAP_MAYMOVE);
    CHECK(p != MAP_FAILED && barrier);
    CHECK(mremap(p, 2 * length, 2 * length, MREMAP_MAYMOVE | MREMAP_FIXED, to + PAGE) == to + PAGE);
    for (size_t i = 0; i < length; i += MIB) CHECK(to[PAGE + i] == i / MIB + 1);
}

static unsigned char *move(unsigned char *from, unsigned char *to) {
    void *result = mremap(from, PAGES * PAGE, PAGES * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, to);
    return moved(from, to, result) ? to : from;
}

int main(void) {
    if (getenv("GUEST_RESERVED_PAGES")) return ok(); /* they are moved as copies */
    room = map_anon(8 * MIB);
    unsigned char *p = room + 500 * PAGE;
    CHECK(mmap(p, PAGES / 2 * PAGE, RW, MAP_SHARED | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == p);
    touch_all(p);
    p = move(p, room + 540 * PAGE);
    touch_all(p);

    p = room + 600 * PAGE;
    touch_all(p);
    CHECK(mprotect(p + PAGES / 2 * PAGE, PAGES / 2 * PAGE, PROT_READ) == 0);
    p = move(p, room + 640 * PAGE);
    CHECK(mprotect(p, PAGES * PAGE, RW) == 0);
    touch_all(p);

    /* Shared in the middle: both ends are private. */
    p = room + 700 * PAGE;
    CHECK(mmap(p + 3 * PAGE, 2 * PAGE, RW, MAP_SHARED | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == p + 3 * PAGE);
    touch_all(p);
    p = move(p, room + 740 * PAGE);
    touch_all(p);

    /* Holes stay holes, and what lies at their place in the target stays. */
    p = room + 800 * PAGE;
    unsigned char *to = room + 840 * PAGE;
    touch_all(p);
    memset(to, 9, PAGES * PAGE);
    CHECK(mprotect(p + 6 * PAGE, 2 * PAGE, PROT_READ) == 0);
    CHECK(munmap(p + 3 * PAGE, 2 * PAGE) == 0);
    if (mremap(p, PAGES * PAGE, PAGES * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, to) == to) {
        for (size_t i = 0; i < PAGES; i++) CHECK(to[i * PAGE] == (i == 3 || i == 4 ? 9 : i + 1));
    } else {
        CHECK(errno == EFAULT && p[0] == 1 && p[2 * PAGE] == 3 && p[7 * PAGE] == 8);
    }
    CHECK_ERRNO(mremap(room + 900 * PAGE, PAGE, 2 * PAGE, MREMAP_FIXED, to), MAP_FAILED, EINVAL);

    /* Several mappings of the program's never grow as one. */
    p = room + 1000 * PAGE;
    CHECK(mprotect(p + 2 * PAGE, PAGE, PROT_READ) == 0 && munmap(p + 3 * PAGE, 64 * PAGE) == 0);
    CHECK_ERRNO(mremap(p, 3 * PAGE, 6 * PAGE, 0), MAP_FAILED, EFAULT);
    CHECK_ERRNO(mremap(p, 3 * PAGE, 6 * PAGE, MREMAP_MAYMOVE), MAP_FAILED, EFAULT);
    without_files();
    return ok();
}

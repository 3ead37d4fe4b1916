/* Slabs: with page_color_slab each cache goes round the colors; without it none is placed. */
#include "tests.h"

enum { COLORS = 16, LINKS = 12000, MOST_FRAMES = 1 << 17 };

/* Frames of slabs of one page: /proc/kpageflags, Documentation/admin-guide/mm/pagemap.rst. */
static size_t mark_slabs(uint64_t *flags)
{
    int file = open("/proc/kpageflags", O_RDONLY | O_CLOEXEC);
    ssize_t got, bytes = 0;
    CHECK(file >= 0);
    while ((got = pread(file, (char *)flags + bytes, MOST_FRAMES * 8 - (size_t)bytes, bytes)) > 0) bytes += got;
    close(file);
    for (size_t at = 0; at < (size_t)bytes / 8; at++)
        flags[at] = (flags[at] >> 7 & 1) && !(flags[at] >> 15 & 1) && !(flags[at] >> 16 & 1);
    return (size_t)bytes / 8;
}

/* Entries of a directory are objects of a cache whose slabs have one page. */
static void make_entries(void)
{
    char path[64];
    CHECK(close(open("/tmp/linked", O_RDWR | O_CREAT, 0600)) == 0);
    for (int at = 0; at < LINKS; at++) {
        snprintf(path, sizeof path, "/tmp/link%d", at);
        CHECK(link("/tmp/linked", path) == 0);
    }
}

static void remove_entries(void)
{
    char path[64];
    for (int at = 0; at < LINKS; at++) {
        snprintf(path, sizeof path, "/tmp/link%d", at);
        unlink(path);
    }
    unlink("/tmp/linked");
}

/* Slabs that come while entries are made, by color. */
static unsigned long new_slabs(unsigned long by_color[COLORS])
{
    static uint64_t before[MOST_FRAMES], after[MOST_FRAMES];
    size_t frames;
    unsigned long slabs = 0;
    mark_slabs(before);
    make_entries();
    frames = mark_slabs(after);
    CHECK(frames > 1000);
    for (size_t at = 0; at < frames; at++) {
        int is_new = after[at] && !before[at];
        by_color[at % COLORS] += (unsigned long)is_new;
        slabs += (unsigned long)is_new;
    }
    remove_entries();
    return slabs;
}

void test_slab(void)
{
    unsigned long by_color[COLORS] = {0}, least = ~0UL, most = 0, slabs;
    long placed = statistic("bin-hopping", "slab");
    slabs = new_slabs(by_color);
    placed = statistic("bin-hopping", "slab") - placed;
    for (int at = 0; at < COLORS; at++) {
        if (by_color[at] < least) least = by_color[at];
        if (by_color[at] > most) most = by_color[at];
    }
    printf("%lu slabs of one page are new, %ld were placed; %lu to %lu of each color\n", slabs, placed, least, most);
    CHECK(slabs > LINKS / 42);
    /* Some are asked for by those who may not sleep. */
    CHECK(placed > (long)slabs * 9 / 10);
    CHECK(most - least <= slabs / COLORS / 4, "uneven");
}

void test_slab_unasked(void)
{
    unsigned long by_color[COLORS] = {0};
    CHECK(new_slabs(by_color) > LINKS / 42);
    CHECK(statistic("bin-hopping", "slab") == 0);
}

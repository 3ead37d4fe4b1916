/* libc's own data moves from frame to frame, again and again, while the program uses libc and touches new pages. libc's
 * copying functions read tuning values from that data: whoever answers faults must not call them while it is away. */
#include "api.h"

enum { MOST = 16, ROUNDS = 40, PAGES = 200 };
struct range {
    unsigned char *at;
    size_t bytes;
};

/* Writable private mappings of a library, and what continues them. */
static int data_of(const char *library, struct range *into) {
    char line[512];
    int count = 0;
    unsigned long end = 0;
    FILE *maps = fopen("/proc/self/maps", "r");
    CHECK(maps);
    while (fgets(line, sizeof line, maps)) {
        unsigned long from, to;
        char rights[8];
        CHECK(sscanf(line, "%lx-%lx %7s", &from, &to, rights) == 3);
        if (!strstr(line, library) && (from != end || strchr(line, '/'))) continue;
        end = to;
        if (strcmp(rights, "rw-p") != 0) continue;
        CHECK(count < MOST);
        into[count++] = (struct range){(unsigned char *)from, to - from};
    }
    fclose(maps);
    return count;
}

static void use_libc(size_t round) {
    size_t bytes = (1 << 20) + round * 1000;
    char *a = malloc(bytes), *b = malloc(bytes);
    CHECK(a && b);
    memset(a, (int)round, bytes);
    memcpy(b, a, bytes);
    CHECK(memcmp(a, b, bytes) == 0);
    free(a);
    free(b);
}

/* The library's own data are not placed: it needs them while it answers faults. */
static void hint_for_the_library(void) {
    struct range ranges[MOST];
    int count = data_of("/libpagelab.", ranges);
    CHECK(count > 1);
    for (int i = 0; i < count; i++) {
        struct pagelab_hint hint = hint_of(PAGELAB_PAGE_COLORING, 3);
        struct pagelab_moved moved;
        CHECK_API(pagelab_set_range(ranges[i].at, ranges[i].bytes, &hint), 0);
        int result = pagelab_remap_range(ranges[i].at, ranges[i].bytes, &moved);
        CHECK(result == -EINVAL || (i > 0 && result == 0)); /* other memory may follow the last of it */
    }
}

int main(void) {
    struct range ranges[MOST];
    int count = data_of("/libc.so", ranges);
    CHECK(count > 0);
    unsigned long moved_pages = 0;
    hint_for_the_library();
    for (size_t round = 0; round < ROUNDS; round++) {
        struct pagelab_hint hint = hint_of(PAGELAB_PAGE_COLORING, 20 + (uint32_t)round % 7);
        for (int i = 0; i < count; i++) {
            struct pagelab_moved moved;
            CHECK_API(pagelab_set_range(ranges[i].at, ranges[i].bytes, &hint), 0);
            CHECK_API(pagelab_remap_range(ranges[i].at, ranges[i].bytes, &moved), 0);
            moved_pages += moved.in_place;
        }
        use_libc(round);
        unsigned char *fresh = map_anon(PAGES * PAGE);
        write_tags(fresh, PAGES, round);
        check_tags(fresh, PAGES, round);
        CHECK(munmap(fresh, PAGES * PAGE) == 0);
    }
    CHECK(moved_pages > ROUNDS);
    return ok();
}

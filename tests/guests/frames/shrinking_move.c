/* A move that shrinks a block to a given place: behind the new place lies the rest of another block, which does not change. */
#include "frames.h"

enum { PAGES = 1024, KEPT = 16 };

int main(void) {
    unsigned char *other = map_anon(2 * PAGES * PAGE), *p = map_anon(PAGES * PAGE);
    unsigned char *behind = other + KEPT * PAGE;
    write_tags(other, KEPT, 3);
    write_tags(behind, 2 * PAGES - KEPT, 1);
    write_tags(p, PAGES, 2);
    CHECK(mremap(p, PAGES * PAGE, KEPT * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, other) == other);
    check_tags(other, KEPT, 2);
    check_tags(behind, 2 * PAGES - KEPT, 1);
    CHECK_PLACED(behind, 2 * PAGES - KEPT);
    return ok();
}

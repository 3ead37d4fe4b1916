/* A block that grows step by step keeps the advice that the program gave it, wherever the next step leads. Regression: what a
 * block grew by beyond a border of page sizes came without it, and a forked child saw that part alone. */
#include "guest.h"

static void grows(int advice, const char *flag, size_t step) {
    size_t pages = 100;
    unsigned char *p = map_anon(pages * PAGE);
    CHECK(madvise(p, pages * PAGE, advice) == 0);
    fill(p, pages * PAGE, 1);
    for (int i = 0; i < 12; i++) {
        unsigned char *grown = mremap(p, pages * PAGE, (pages + step) * PAGE, MREMAP_MAYMOVE);
        CHECK(grown != MAP_FAILED);
        p = grown;
        pages += step;
        if (!is_all(p, pages * PAGE, flag, flag)) FAIL("%zu pages, not all of them with%s", pages, flag);
        CHECK(holds(p, 100 * PAGE, 1));
    }
    CHECK(munmap(p, pages * PAGE) == 0);
}

int main(void) {
    grows(MADV_DONTFORK, " dc", 500);
    grows(MADV_WIPEONFORK, " wf", 300);
    grows(MADV_DONTFORK, " dc", 40);
    return ok();
}

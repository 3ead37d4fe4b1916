/* A forked child keeps the hints and has an engine of its own; the parent's goes on. */
#include "api.h"

enum { PAGES = 300 };

static void touch(unsigned char *p, size_t from, size_t to) {
    for (size_t i = from; i < to; i++) p[i * PAGE] = (unsigned char)(i + 1);
}

int main(void) {
    unsigned char *p = map_anon(PAGES * PAGE);
    struct pagelab_hint hint = hint_of(PAGELAB_PAGE_COLORING, 40);
    hint.fault_around = 1; /* what the parent has in memory is copied in the child, to frames of the kernel's choice */
    CHECK_API(pagelab_set_range(p, PAGES * PAGE, &hint), 0);
    touch(p, 0, 100);
    for (int child = 0; child < 3; child++) {
        pid_t pid = fork();
        if (pid == 0) {
            CHECK_API(pagelab_strategy_at(p), PAGELAB_PAGE_COLORING);
            touch(p, 100, 200);
            CHECK_COLORED(p + 100 * PAGE, 100, 40);
            unsigned char *q = map_anon(PAGES * PAGE);
            hint.colors = 9;
            CHECK_API(pagelab_set_range(q, PAGES * PAGE, &hint), 0);
            touch(q, 0, PAGES);
            CHECK_COLORED(q, PAGES, 9);
            for (size_t i = 0; i < 200; i++) CHECK(p[i * PAGE] == (unsigned char)(i + 1));
            _exit(0);
        }
        CHECK(wait_for(pid) == 0);
    }
    touch(p, 200, PAGES);
    CHECK_COLORED(p + 200 * PAGE, 100, 40);
    CHECK(p[150 * PAGE] == 0);
    return ok();
}

/* fork while another thread gives hints: the child can give some itself, and end. */
#include "api.h"

enum { PAGES = 8, CHILDREN = 100 };
static volatile int stop;

static void *hint_often(void *unused) {
    unsigned char *p = map_anon(PAGES * PAGE);
    struct pagelab_hint hint = hint_of(PAGELAB_PAGE_COLORING, 0);
    for (uint32_t round = 0; !stop; round++) {
        hint.colors = 8 + round % 8;
        CHECK(pagelab_set_range(p, PAGES * PAGE, &hint) == 0);
        CHECK(pagelab_clear_range(p, PAGES * PAGE) == 0);
    }
    return unused;
}

int main(void) {
    pthread_t thread = start(hint_often, NULL);
    for (int i = 0; i < CHILDREN; i++) {
        usleep(37 * i % 1000);
        pid_t pid = fork();
        CHECK(pid >= 0);
        if (pid == 0) {
            unsigned char *q = map_anon(PAGES * PAGE);
            struct pagelab_hint hint = hint_of(PAGELAB_PAGE_COLORING, 5);
            CHECK_API(pagelab_set_range(q, PAGES * PAGE, &hint), 0);
            for (size_t at = 0; at < PAGES; at++) q[at * PAGE] = 1;
            CHECK_COLORED(q, PAGES, 5);
            _exit(3);
        }
        CHECK(wait_20_s_for(pid) == 3);
    }
    stop = 1;
    CHECK(pthread_join(thread, NULL) == 0);
    return ok();
}

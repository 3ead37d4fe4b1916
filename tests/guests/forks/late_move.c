/* A fork is in the program's own handler (pthread_atfork) when another thread gives the first hint and moves pages: the
 * child has all of them. Regression: libc did not call the handlers that the library had registered meanwhile, so that
 * pages were moved during the fork, and the child had zeros in their place. */
#include "forks.h"

enum { PAGES = 1024, ROUNDS = 200 };
static unsigned char *p;
static volatile int preparing, moving, stop;

static void prepare(void) {
    preparing = 1;
    for (int i = 0; i < 5000 && !moving; i++) usleep(1000);
}

static void *move_often(void *unused) {
    struct pagelab_hint hint = hint_of(PAGELAB_RANDOM, 16);
    while (!preparing) usleep(100);
    for (; !stop; hint.seed++) {
        CHECK_API(pagelab_set_range(p, PAGES * PAGE, &hint), answer);
        CHECK_API(pagelab_remap_range(p, PAGES * PAGE, NULL), answer);
        moving = 1;
    }
    return unused;
}

static void check_pages(void) {
    size_t lost = 0;
    for (size_t i = 0; i < PAGES; i++) lost += p[i * PAGE] != 7;
    if (lost) FAIL("%zu pages have lost their contents", lost);
}

static void fork_beside_moves(void) {
    p = map_anon(PAGES * PAGE);
    CHECK(madvise(p, PAGES * PAGE, MADV_NOHUGEPAGE) == 0 || errno == EINVAL); /* a kernel without huge pages */
    memset(p, 7, PAGES * PAGE);
    CHECK(pthread_atfork(prepare, NULL, NULL) == 0);
    pthread_t thread = start(move_often, NULL);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        check_pages();
        _exit(0);
    }
    CHECK(wait_20_s_for(child) == 0);
    stop = 1;
    CHECK(pthread_join(thread, NULL) == 0);
    check_pages();
}

int main(int argc, char **argv) {
    read_arguments(argc, argv);
    for (int round = 0; round < ROUNDS; round++) {
        pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) {
            fork_beside_moves();
            _exit(0);
        }
        CHECK(wait_at_most(30, child) == 0);
    }
    return ok();
}

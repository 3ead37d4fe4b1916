/* A program whose handler before forks (pthread_atfork) takes its mutex forks while another thread, which has this mutex,
 * moves pages. Regression: if the first hint came after the handler was registered, the library's handler ran first and
 * kept moves from beginning, and the program's then waited for ever for the mutex. */
#include "forks.h"

enum { PAGES = 64, FORKS = 100 };
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static volatile int stop;

static void take(void) { CHECK(pthread_mutex_lock(&mutex) == 0); }
static void give(void) { CHECK(pthread_mutex_unlock(&mutex) == 0); }

static void *move_often(void *p) {
    while (!stop) {
        take();
        int got = pagelab_remap_range(p, PAGES * PAGE, NULL);
        give();
        if (got != answer) FAIL("pagelab_remap_range: %d", got);
        usleep(300); /* otherwise the other thread seldom gets the mutex */
    }
    return NULL;
}

static void fork_often(void) {
    struct pagelab_hint hint = hint_of(PAGELAB_PAGE_COLORING, 8);
    unsigned char *p = map_anon(PAGES * PAGE);
    CHECK(pthread_atfork(take, give, give) == 0);
    CHECK_API(pagelab_set_range(p, PAGES * PAGE, &hint), answer);
    fill(p, PAGES * PAGE, 1);
    pthread_t thread = start(move_often, p);
    for (int i = 0; i < FORKS; i++) {
        pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) _exit(0);
        CHECK(wait_20_s_for(child) == 0);
    }
    stop = 1;
    CHECK(pthread_join(thread, NULL) == 0);
    CHECK(holds(p, PAGES * PAGE, 1));
}

int main(int argc, char **argv) {
    read_arguments(argc, argv);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        fork_often();
        _exit(0);
    }
    CHECK(wait_at_most(60, child) == 0);
    return ok();
}

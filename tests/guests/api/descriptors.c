/* A thread closes all descriptors that it does not know, as daemons do, and opens files of its own, while another gives
 * hints, moves pages and takes the hints back: the library never reads, closes or keeps a file of the program's.
 * Regression: the functions of pagelab.h opened their files in the program's table. */
#include "api.h"
#include <sys/stat.h>

enum { PAGES = 64, ROUNDS = 100000 };
static volatile int finished;

static void *give_hints(void *unused) {
    struct pagelab_hint hint = hint_of(PAGELAB_PAGE_COLORING, 8);
    unsigned char *p = map_anon(PAGES * PAGE);
    fill(p, PAGES * PAGE, 1);
    while (!finished) {
        CHECK_API(pagelab_set_range(p, PAGES * PAGE, &hint), 0);
        CHECK_API(pagelab_remap_range(p, PAGES * PAGE, NULL), 0);
        CHECK_API(pagelab_clear_range(p, PAGES * PAGE), 0);
    }
    CHECK(holds(p, PAGES * PAGE, 1));
    return unused;
}

int main(void) {
    char path[] = "/tmp/descriptors_XXXXXX";
    int file = mkstemp(path);
    struct stat wanted, got;
    CHECK(file >= 0 && unlink(path) == 0 && dup2(file, 500) == 500 && close(file) == 0 && fstat(500, &wanted) == 0);
    pthread_t thread = start(give_hints, NULL);
    for (int round = 0; round < ROUNDS; round++) {
        int own[6];
        CHECK(close_range(3, 499, 0) == 0);
        for (int i = 0; i < 6; i++) own[i] = dup(500);
        for (int i = 0; i < 6; i++)
            if (own[i] < 0 || fstat(own[i], &got) || got.st_ino != wanted.st_ino)
                FAIL("round %d: descriptor %d is not the program's any more", round, own[i]);
        for (int i = 0; i < 6; i++)
            if (close(own[i])) FAIL("round %d: descriptor %d was closed by somebody", round, own[i]);
    }
    finished = 1;
    CHECK(pthread_join(thread, NULL) == 0);
    return ok();
}

/* More memory than there is, in and out of swap all the time, by threads and forks: the contents stay.
 * Arguments: MiB, rounds. */
#include "frames.h"

static unsigned char *p;
static size_t pages, rounds;

/* Each thread has every fourth page, in an order of its own. */
static void *work(void *argument) {
    size_t first = (size_t)argument;
    uint64_t state = first + 1;
    for (size_t i = first; i < pages; i += 4) write_tag(p, i, first);
    for (size_t i = 0; i < rounds * pages / 4; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        size_t page = (size_t)(state >> 33) % (pages / 4) * 4 + first;
        uint64_t got = *(volatile uint64_t *)(p + page * PAGE + page % 500 * 8);
        if (got != first + page) FAIL("page %zu holds %zx", page, (size_t)got);
    }
    return NULL;
}

int main(int argc, char **argv) {
    CHECK(argc == 3);
    pages = (size_t)atol(argv[1]) * 256;
    rounds = (size_t)atol(argv[2]);
    p = map_anon(pages * PAGE);
    pthread_t threads[4];
    for (size_t i = 0; i < 4; i++) CHECK(pthread_create(&threads[i], NULL, work, (void *)i) == 0);
    for (size_t i = 0; i < 4; i++) CHECK(pthread_join(threads[i], NULL) == 0);
    pid_t pid = fork();
    if (pid == 0) {
        for (size_t i = 0; i < pages; i += 7) write_tag(p, i, 5);
        for (size_t i = 0; i < pages; i += 7) {
            uint64_t got = *(volatile uint64_t *)(p + i * PAGE + i % 500 * 8);
            if (got != 5 + i) FAIL("the child's page %zu holds %zx", i, (size_t)got);
        }
        _exit(0);
    }
    CHECK(wait_for(pid) == 0);
    for (size_t i = 0; i < pages; i++) {
        uint64_t got = *(volatile uint64_t *)(p + i * PAGE + i % 500 * 8);
        if (got != i % 4 + i) FAIL("page %zu holds %zx afterwards", i, (size_t)got);
    }
    CHECK(munmap(p, pages * PAGE) == 0);
    return ok();
}

/* Threads fault on pages that others discard, protect, move and unmap at the same time; forks in between. Every word that
 * is read is zero or what was written there; nobody hangs; the pages are as promised when all is quiet.
 * Arguments: threads, milliseconds, seed. */
#include "frames.h"
#include <time.h>

enum { PAGES = 512, MOST = 16 };
static unsigned char *memory;
static volatile int done;
static long threads = 4;
static uint64_t base_seed = 1;

static uint64_t stamp(size_t page) { return 0xA5A5000000000000u + page; }

static void *toucher(void *argument) {
    uint64_t seed = base_seed * 977 + (uintptr_t)argument;
    while (!done) {
        size_t first = random_next(&seed) % PAGES, count = 1 + random_next(&seed) % 40;
        for (size_t i = first; i < first + count && i < PAGES; i++) {
            volatile uint64_t *word = (volatile uint64_t *)(memory + i * PAGE) + seed % 2;
            uint64_t got = *word;
            if (got != 0 && got != stamp(i)) FAIL("page %zu holds %zx", i, (size_t)got);
            if (seed & 4) *word = stamp(i);
        }
    }
    return NULL;
}

static void *discarder(void *argument) {
    uint64_t seed = base_seed * 1009 + (uintptr_t)argument;
    while (!done) {
        size_t first = random_next(&seed) % PAGES, count = 1 + random_next(&seed) % 64;
        if (first + count > PAGES) count = PAGES - first;
        unsigned char *at = memory + first * PAGE;
        switch (random_next(&seed) % 6) {
        case 0: CHECK(mmap(at, count * PAGE, RW, ANON | MAP_FIXED, -1, 0) == at); break;
        case 1: CHECK(madvise(at, count * PAGE, MADV_FREE) == 0); break;
        case 2: CHECK(madvise(at, count * PAGE, MADV_POPULATE_WRITE) == 0 || errno == EINVAL || errno == EAGAIN); break;
        default: CHECK(madvise(at, count * PAGE, MADV_DONTNEED) == 0); break;
        }
        usleep(random_next(&seed) % 200);
    }
    return NULL;
}

static void *mapper(void *argument) {
    uint64_t seed = base_seed * 1013 + (uintptr_t)argument;
    while (!done) {
        size_t pages = 1 + random_next(&seed) % 200;
        unsigned char *p = map_anon(pages * PAGE);
        write_tags(p, pages, seed);
        CHECK(mprotect(p, pages * PAGE, PROT_READ) == 0);
        check_tags(p, pages, seed);
        CHECK(mprotect(p, pages * PAGE, RW) == 0);
        unsigned char *q = mremap(p, pages * PAGE, (pages + 30) * PAGE, MREMAP_MAYMOVE);
        CHECK(q != MAP_FAILED);
        check_tags(q, pages, seed);
        CHECK(all_zero(q + pages * PAGE, 30 * PAGE));
        CHECK(munmap(q, (pages + 30) * PAGE) == 0);
    }
    return NULL;
}

static void *forker(void *argument) {
    uint64_t seed = base_seed * 1019 + (uintptr_t)argument;
    while (!done) {
        pid_t pid = fork();
        if (pid == 0) {
            for (size_t i = 0; i < PAGES; i += 1 + seed % 7) {
                uint64_t got = *(volatile uint64_t *)(memory + i * PAGE);
                if (got != 0 && got != stamp(i)) FAIL("child: page %zu holds %zx", i, (size_t)got);
                memory[i * PAGE + 100] = 1;
            }
            _exit(0);
        }
        CHECK(wait_for(pid) == 0);
        usleep(random_next(&seed) % 3000);
    }
    return NULL;
}

int main(int argc, char **argv) {
    static void *(*const roles[])(void *) = {toucher, discarder, toucher, mapper, toucher, forker};
    long milliseconds = 500;
    if (argc > 1) threads = atol(argv[1]);
    if (argc > 2) milliseconds = atol(argv[2]);
    if (argc > 3) base_seed = strtoull(argv[3], NULL, 10);
    CHECK(threads >= 1 && threads <= MOST);
    memory = map_anon(PAGES * PAGE);
    pthread_t running[MOST];
    for (long i = 0; i < threads; i++) running[i] = start(roles[i % 6], (void *)(i + 1));
    struct timespec pause = {milliseconds / 1000, milliseconds % 1000 * 1000000};
    while (nanosleep(&pause, &pause) != 0) {}
    done = 1;
    for (long i = 0; i < threads; i++) CHECK(pthread_join(running[i], NULL) == 0);
    CHECK(madvise(memory, PAGES * PAGE, MADV_DONTNEED) == 0);
    write_tags(memory, PAGES, 1);
    check_tags(memory, PAGES, 1);
    CHECK_PLACED(memory, PAGES);
    return ok();
}

/* A thread closes all descriptors it does not know, as daemons do, and opens files of its own, while others give memory
 * back: whatever descriptor the library has for a moment, it never reads, closes or keeps the program's. */
#include "../guest.h"
#include <sys/stat.h>

enum { THREADS = 2 };
static volatile int finished;

static void *give_back(void *argument) {
    uint64_t seed = (uintptr_t)argument;
    while (!finished) {
        size_t bytes = (1 + random_next(&seed) % 10) * MIB;
        unsigned char *p = map_anon(bytes);
        for (size_t at = 0; at < bytes; at += 256 * KIB) p[at] = 1;
        CHECK(munmap(p, bytes) == 0);
    }
    return NULL;
}

int main(int argc, char **argv) {
    int rounds = argc > 1 ? atoi(argv[1]) : 4000;
    pthread_t running[THREADS];
    char path[] = "/tmp/close_range_XXXXXX", word[8];
    int file = mkstemp(path);
    struct stat wanted, got;
    CHECK(file >= 0 && unlink(path) == 0 && write(file, "content", 8) == 8 && dup2(file, 500) == 500 && close(file) == 0);
    CHECK(fstat(500, &wanted) == 0);
    for (size_t t = 0; t < THREADS; t++) running[t] = start(give_back, (void *)(t + 1));
    for (int round = 0; round < rounds; round++) {
        int own[6];
        CHECK(close_range(3, 499, 0) == 0 && close_range(501, ~0u, 0) == 0);
        for (int i = 0; i < 6; i++) own[i] = dup(500);
        for (int i = 0; i < 6; i++) {
            if (own[i] < 0 || fstat(own[i], &got) || got.st_ino != wanted.st_ino)
                FAIL("round %d: descriptor %d is not the program's any more", round, own[i]);
            if (pread(own[i], word, 8, 0) != 8 || memcmp(word, "content", 8) != 0) FAIL("round %d: other contents", round);
        }
        for (int i = 0; i < 6; i++)
            if (close(own[i])) FAIL("round %d: descriptor %d was closed by somebody", round, own[i]);
    }
    finished = 1;
    for (size_t t = 0; t < THREADS; t++) CHECK(pthread_join(running[t], NULL) == 0);
    return ok();
}

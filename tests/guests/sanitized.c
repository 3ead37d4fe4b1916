/* For compilers' sanitizers: threads, malloc, a mapping of its own (printed), fork, and on request ("overflow") a write
 * behind a block, which AddressSanitizer must still find, or ("leak") a block that is lost. */
#include "guest.h"

static void *work(void *unused) {
    for (size_t i = 0; i < 200; i++) {
        unsigned char *p = malloc(1000 + i * 997);
        CHECK(p);
        memset(p, (int)i, 1000 + i * 997);
        free(p);
    }
    return unused;
}

/* Mostly untouched: who searches memory for pointers touches it. */
static unsigned char large[16 << 20];

static __attribute__((noinline)) void lose(void) {
    void *volatile lost = malloc(1000);
    memset(lost, 1, 1000);
    lost = NULL;
}

int main(int argc, char **argv) {
    pthread_t thread[3];
    for (int i = 0; i < 3; i++) CHECK(pthread_create(&thread[i], NULL, work, NULL) == 0);
    for (int i = 0; i < 3; i++) CHECK(pthread_join(thread[i], NULL) == 0);
    unsigned char *mapped = map_anon(5 * MIB);
    memset(mapped, 1, 5 * MIB);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        memset(mapped, 2, 5 * MIB);
        _exit(0);
    }
    int status = 0;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    CHECK(mapped[0] == 1 && mapped[5 * MIB - 1] == 1);
    dprintf(1, "%#lx\n", (unsigned long)mapped);
    CHECK(munmap(mapped, 5 * MIB) == 0);
    if (argc > 1 && strcmp(argv[1], "overflow") == 0) {
        volatile unsigned char *p = malloc(1000);
        p[1000 + (size_t)argc - 2] = 1;
        free((void *)p);
    }
    large[5 * MIB] = 1;
    if (argc > 1 && strcmp(argv[1], "leak") == 0) lose();
    return ok();
}

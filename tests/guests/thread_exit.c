/* Hundreds of short threads, joined and detached: stacks and arenas are reused, nothing is left mapped. */
#include "guest.h"

static volatile int detached_left = 200;

static void *short_life(void *argument) {
    volatile char deep[20000];
    memset((void *)deep, 1, sizeof deep);
    unsigned char *p = calloc(1, 50 * KIB);
    CHECK(p && all_zero(p, 50 * KIB));
    memset(p, 7, 50 * KIB);
    free(p);
    if (argument) __atomic_sub_fetch(&detached_left, 1, __ATOMIC_SEQ_CST);
    return NULL;
}

static long mapped_pages(void) {
    long pages = -1;
    FILE *f = fopen("/proc/self/statm", "r");
    CHECK(f && fscanf(f, "%ld", &pages) == 1);
    fclose(f);
    return pages;
}

int main(void) {
    long before = 0;
    for (int i = 0; i < 300; i++) {
        pthread_t a = start(short_life, NULL), b = start(short_life, NULL);
        CHECK(pthread_join(a, NULL) == 0);
        CHECK(pthread_join(b, NULL) == 0);
        if (i == 50) before = mapped_pages();
    }
    /* 250 more rounds must not each leave a stack (8 MiB) behind. */
    CHECK(mapped_pages() - before < (long)(256 * MIB / PAGE));
    for (int i = 0; i < 200; i++) CHECK(pthread_detach(start(short_life, (void *)1)) == 0);
    while (detached_left > 0) usleep(1000);
    return ok();
}

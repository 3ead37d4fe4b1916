/* A child of a program whose other threads are in the middle of memory calls has its memory and its break, also where
 * /proc cannot be read: here no descriptor is free. */
#include "guest.h"
#include <sys/resource.h>

static volatile int over;
static unsigned char *area, *neighbour;
static char *own_break;

/* Through the kernel's and libc's doors alone: malloc's locks would keep a fork away from the middle of a call. */
static void *map_and_unmap(void *nothing) {
    (void)nothing;
    while (!over) {
        unsigned char *p = mmap(NULL, 3 * PAGE, RW, ANON, -1, 0);
        CHECK(p != MAP_FAILED);
        *p = 1;
        CHECK(is_done(munmap(p, 3 * PAGE)));
    }
    return NULL;
}

static void in_child(void) {
    /* A neighbour of what goes stays. */
    CHECK(is_done(munmap(area, PAGE)));
    CHECK(*neighbour == 9);
    /* The break is where it was, and moves as it did. */
    CHECK(sbrk(0) == own_break);
    CHECK(*(own_break - 1) == 3);
    CHECK(sbrk(-(intptr_t)PAGE) == own_break);
    CHECK(sbrk(0) == own_break - PAGE);
    CHECK(*(own_break - PAGE - 1) == 3);
    /* Memory is to be had, and is zero. */
    unsigned char *p = mmap(NULL, 3 * MIB, RW, ANON, -1, 0);
    CHECK(p != MAP_FAILED && all_zero(p, 3 * MIB));
    char *text = malloc(100000);
    CHECK(text != NULL);
    memset(text, 1, 100000);
    free(text);
    _exit(0);
}

int main(void) {
    area = map_anon(PAGE);
    neighbour = map_anon(PAGE);
    *area = *neighbour = 9;
    /* As many descriptors as are open: none is free. */
    int next = open("/dev/null", O_RDONLY);
    CHECK(next >= 0);
    close(next);
    struct rlimit limit = {(rlim_t)next, (rlim_t)next};
    CHECK(setrlimit(RLIMIT_NOFILE, &limit) == 0);
    pthread_t threads[2];
    for (int i = 0; i < 2; i++) threads[i] = start(map_and_unmap, NULL);
    char *begin = sbrk(256 * KIB);
    CHECK(begin != (void *)-1);
    own_break = begin + 256 * KIB;
    memset(begin, 3, 256 * KIB);
    /* The program may make holes in its own part of the heap. */
    CHECK(is_done(munmap((void *)(((uintptr_t)begin + PAGE) & ~(PAGE - 1)), PAGE)));
    for (int i = 0; i < 60; i++) {
        pid_t child = fork();
        if (child == 0) in_child();
        CHECK(wait_20_s_for(child) == 0);
    }
    over = 1;
    for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
    return ok();
}

/* Forks meet another thread as it raises or lowers the break by sbrk: most children can move it all the same, and use the memory. */
#include "../guest.h"

enum { FORKS = 150, MOST_STUCK = FORKS / 5 };
static volatile int stop;

static void *move_break(void *unused) {
    const intptr_t bytes = 3 * MIB + 100;
    while (!stop) CHECK(sbrk(bytes) != (void *)-1 && sbrk(-bytes) != (void *)-1);
    return unused;
}

int main(void) {
    pthread_t thread = start(move_break, NULL);
    int stuck = 0;
    for (int i = 0; i < FORKS; i++) {
        usleep((useconds_t)(i % 7) * 50);
        pid_t child = fork();
        if (child == 0) {
            unsigned char *p = sbrk(5 * MIB);
            if (p == (void *)-1) _exit(9);
            fill(p, 5 * MIB, 1);
            _exit(holds(p, 5 * MIB, 1) ? 0 : 1);
        }
        int status = wait_for(child);
        CHECK(status == 0 || status == 9);
        stuck += status == 9;
    }
    stop = 1;
    CHECK(pthread_join(thread, NULL) == 0);
    if (stuck > MOST_STUCK) FAIL("in %d of %d children", stuck, FORKS);
    return ok();
}

/* makecontext and swapcontext on stacks that the program maps itself (coroutines). */
#include "guest.h"
#include <ucontext.h>

enum { ROUTINES = 50 };
static ucontext_t scheduler, routine[ROUTINES];
static int steps;

static void run(int id) {
    unsigned char *p = malloc(1000 + id);
    for (int i = 0; i < 10; i++) {
        fill(p, 1000 + id, id);
        CHECK(swapcontext(&routine[id], &scheduler) == 0);
        CHECK(holds(p, 1000 + id, id));
        steps++;
    }
    free(p);
}

int main(void) {
    for (volatile int i = 0; i < ROUTINES; i++) {
        CHECK(getcontext(&routine[i]) == 0);
        routine[i].uc_stack.ss_sp = map_anon(64 * KIB);
        CHECK(mprotect(routine[i].uc_stack.ss_sp, PAGE, PROT_NONE) == 0);
        routine[i].uc_stack.ss_size = 64 * KIB;
        routine[i].uc_link = &scheduler;
        makecontext(&routine[i], (void (*)(void))run, 1, (int)i);
    }
    for (int round = 0; round < 11; round++)
        for (int i = 0; i < ROUTINES; i++) CHECK(swapcontext(&scheduler, &routine[i]) == 0);
    CHECK(steps == 10 * ROUTINES);
    return ok();
}

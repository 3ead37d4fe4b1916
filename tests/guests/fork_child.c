/* fork: parent and child see the same memory, then each only its own writes; the child goes on allocating. */
#include "guest.h"

static int child(unsigned char *mapped, unsigned char *heap, int depth) {
    CHECK(holds(mapped, 3 * MIB, 1));
    CHECK(holds(heap, 100 * KIB, 2));
    fill(mapped, 3 * MIB, 3);
    memset(heap, 0xEE, 100 * KIB);
    churn(7, 400, 300 * KIB);
    unsigned char *more = map_anon(5 * MIB);
    CHECK(all_zero(more, 5 * MIB));
    fill(more, 5 * MIB, 4);
    if (depth > 0) {
        pid_t pid = fork();
        if (pid == 0) {
            CHECK(holds(more, 5 * MIB, 4));
            CHECK(holds(mapped, 3 * MIB, 3));
            churn(8, 200, 300 * KIB);
            _exit(11);
        }
        CHECK(wait_for(pid) == 11);
    }
    CHECK(munmap(more, 5 * MIB) == 0);
    free(heap);
    return 10;
}

int main(void) {
    unsigned char *mapped = map_anon(3 * MIB), *heap = malloc(100 * KIB);
    fill(mapped, 3 * MIB, 1);
    fill(heap, 100 * KIB, 2);
    for (int i = 0; i < 3; i++) {
        pid_t pid = fork();
        if (pid == 0) exit(child(mapped, heap, 1)); /* exit: handlers run in the child too */
        CHECK(wait_for(pid) == 10);
        CHECK(holds(mapped, 3 * MIB, 1));
        CHECK(holds(heap, 100 * KIB, 2));
        churn(9, 200, 300 * KIB);
    }
    return ok();
}

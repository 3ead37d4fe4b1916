/* A forked child writes to memory that it shares with its parent: each has its own from then on. */
#include "guest.h"

int main(void) {
    const size_t bytes = 6 * MIB;
    unsigned char *heap = sbrk((intptr_t)bytes), *mapped = map_anon(bytes);
    CHECK(heap != (void *)-1);
    fill(heap, bytes, 1);
    fill(mapped, bytes, 2);
    for (int i = 0; i < 2; i++) {
        pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) {
            fill(heap, bytes, 3);
            CHECK(holds(mapped, bytes, 2) && holds(heap, bytes, 3));
            exit(0);
        }
        CHECK(wait_for(child) == 0);
    }
    CHECK(holds(heap, bytes, 1) && holds(mapped, bytes, 2));
    return ok();
}

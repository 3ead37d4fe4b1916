/* A thread fills 8 MiB of its malloc arena. */
#include "../guest.h"

static void *fill_arena(void *unused) {
    for (int i = 0; i < 400; i++) {
        char *block = malloc(21000);
        CHECK(block);
        memset(block, 1, 21000);
    }
    return unused;
}

int main(void) {
    CHECK(pthread_join(start(fill_arena, NULL), NULL) == 0);
    return 0;
}

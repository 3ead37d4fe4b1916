/* Not a guest: the shared object that dlopen_plugin loads. Its constructor allocates and maps. */
#include "guest.h"

static unsigned char *from_constructor, *mapped;
static __thread int per_thread = 77;
static unsigned char data[3 * 4096] = {1, 2, 3};
static unsigned char zeroed[5 * 4096];

__attribute__((constructor)) static void begin(void) {
    from_constructor = malloc(200 * KIB);
    fill(from_constructor, 200 * KIB, 1);
    mapped = map_anon(3 * MIB);
    fill(mapped, 3 * MIB, 2);
}

__attribute__((destructor)) static void end(void) {
    CHECK(holds(from_constructor, 200 * KIB, 1));
    free(from_constructor);
    CHECK(munmap(mapped, 3 * MIB) == 0);
}

int plugin_check(void);
int plugin_check(void) {
    CHECK(holds(from_constructor, 200 * KIB, 1) && holds(mapped, 3 * MIB, 2));
    CHECK(data[2] == 3 && all_zero(zeroed, sizeof zeroed));
    data[2] = 3;
    zeroed[4096] = 1;
    zeroed[4096] = 0;
    return per_thread++;
}

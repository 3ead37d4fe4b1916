/* MAP_FIXED_NOREPLACE: EEXIST where a single page is taken, exact placement where none is. */
#include "guest.h"

int main(void) {
    unsigned char *p = map_anon(8 * MIB);
    fill(p, 8 * MIB, 1);
    const size_t at[] = {0, PAGE, 2 * MIB, 8 * MIB - PAGE};
    for (size_t i = 0; i < 4; i++)
        CHECK_ERRNO(mmap(p + at[i], PAGE, RW, ANON | MAP_FIXED_NOREPLACE, -1, 0), MAP_FAILED, EEXIST);
    CHECK(munmap(p + 2 * MIB, 2 * MIB) == 0);
    CHECK_ERRNO(mmap(p + 2 * MIB, 2 * MIB + PAGE, RW, ANON | MAP_FIXED_NOREPLACE, -1, 0), MAP_FAILED, EEXIST);
    CHECK_ERRNO(mmap(p + 2 * MIB - PAGE, 2 * MIB, RW, ANON | MAP_FIXED_NOREPLACE, -1, 0), MAP_FAILED, EEXIST);
    CHECK(mmap(p + 2 * MIB, 2 * MIB, RW, ANON | MAP_FIXED_NOREPLACE, -1, 0) == p + 2 * MIB);
    CHECK(all_zero(p + 2 * MIB, 2 * MIB) && holds(p, 2 * MIB, 1) && holds_from(p + 4 * MIB, 4 * MIB, 1, 4 * MIB));
    void *heap = malloc(10);
    CHECK_ERRNO(mmap((void *)((uintptr_t)heap & ~(PAGE - 1)), PAGE, RW, ANON | MAP_FIXED_NOREPLACE, -1, 0), MAP_FAILED,
                EEXIST);
    return ok();
}

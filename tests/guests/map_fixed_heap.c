/* MAP_FIXED in the middle of the heap (as checkpointers do): malloc's other memory is untouched. */
#include "guest.h"

int main(void) {
    unsigned char *block = malloc(64 * KIB), *after = malloc(64 * KIB);
    fill(block, 64 * KIB, 1);
    fill(after, 64 * KIB, 2);
    unsigned char *inside = (unsigned char *)(((uintptr_t)block + PAGE - 1) & ~(PAGE - 1));
    size_t offset = (size_t)(inside - block);
    CHECK(mmap(inside, 8 * PAGE, RW, ANON | MAP_FIXED, -1, 0) == inside);
    CHECK(all_zero(inside, 8 * PAGE));
    CHECK(holds(block, offset, 1) && holds_from(inside + 8 * PAGE, 64 * KIB - offset - 8 * PAGE, 1, offset + 8 * PAGE));
    CHECK(holds(after, 64 * KIB, 2));
    free(block);
    churn(1, 500, 100 * KIB);
    CHECK(holds(after, 64 * KIB, 2));
    /* Something in the way of the break: sbrk cannot grow over it, malloc still finds memory. */
    uintptr_t end = ((uintptr_t)sbrk(0) + PAGE - 1) & ~(PAGE - 1);
    uintptr_t wall = end + 64 * MIB;
    CHECK(mmap((void *)wall, PAGE, RW, ANON | MAP_FIXED_NOREPLACE, -1, 0) == (void *)wall);
    *(unsigned char *)wall = 99;
    CHECK_ERRNO(sbrk(128 * MIB), (void *)-1, ENOMEM);
    for (int i = 0; i < 1000; i++) CHECK(memset(malloc(100 * KIB), 1, 100) != NULL);
    CHECK(*(unsigned char *)wall == 99);
    return ok();
}

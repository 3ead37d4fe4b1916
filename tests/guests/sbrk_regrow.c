/* sbrk grows, shrinks and grows again: memory that comes back is zero, what stayed is kept. */
#include "guest.h"

int main(void) {
    unsigned char *base = sbrk(0);
    CHECK(base != (void *)-1);
    CHECK(sbrk(3 * MIB + 100) == base);
    CHECK(sbrk(0) == base + 3 * MIB + 100);
    CHECK(all_zero(base, 3 * MIB + 100));
    fill(base, 3 * MIB + 100, 1);
    const size_t drops[] = {50, PAGE, 100 * KIB, 2 * MIB, 2 * MIB + 5000};
    for (size_t i = 0; i < 5; i++) {
        CHECK(sbrk(-(intptr_t)drops[i]) == base + 3 * MIB + 100);
        CHECK(sbrk(0) == base + 3 * MIB + 100 - drops[i]);
        CHECK(holds(base, 3 * MIB + 100 - drops[i], 1));
        CHECK(sbrk((intptr_t)drops[i]) == base + 3 * MIB + 100 - drops[i]);
        /* The page that the shrunk break lies in may keep its bytes; the pages above it must be fresh. */
        uintptr_t fresh = ((uintptr_t)base + 3 * MIB + 100 - drops[i] + PAGE - 1) & ~(PAGE - 1);
        uintptr_t end = (uintptr_t)base + 3 * MIB + 100;
        if (fresh < end) CHECK(all_zero((void *)fresh, end - fresh));
        fill(base, 3 * MIB + 100, 1);
    }
    CHECK(brk(base) == 0 && sbrk(0) == base);
    for (int i = 0; i < 50; i++) { /* in small steps, across tile borders */
        unsigned char *piece = sbrk(200 * KIB);
        CHECK(piece != (void *)-1);
        CHECK(all_zero((void *)(((uintptr_t)piece + PAGE - 1) & ~(PAGE - 1)), 200 * KIB - PAGE));
        fill(piece, 200 * KIB, 2);
        if (i % 7 == 6) CHECK(sbrk(-(intptr_t)(300 * KIB)) != (void *)-1);
    }
    CHECK(brk(base) == 0);
    churn(1, 500, 100 * KIB);
    return ok();
}

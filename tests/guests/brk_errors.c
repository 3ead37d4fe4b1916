/* brk and sbrk fail as they should: ENOMEM for the absurd, the break left where it was. */
#include "guest.h"
#include <stdint.h>

int main(void) {
    unsigned char *base = sbrk(0);
    CHECK_ERRNO(sbrk(INTPTR_MAX / 2), (void *)-1, ENOMEM);
    CHECK(sbrk(0) == base);
    CHECK_ERRNO(brk((void *)0x7ffffffff000), -1, ENOMEM);
    CHECK(sbrk(0) == base);
    brk((void *)4096); /* below the heap: glibc reports success, nothing may move */
    CHECK(sbrk(0) == base);
    errno = 77;
    CHECK(sbrk(MIB) == base && errno == 77);
    fill(base, MIB, 1);
    CHECK(brk(base + MIB / 2) == 0 && errno == 77);
    CHECK(holds(base, MIB / 2, 1));
    churn(1, 300, 100 * KIB);
    return ok();
}

/* brk and sbrk fail as they should: ENOMEM for the absurd, the break left where it was. A page stays clear between the break
 * and the next mapping. Regression: an overrun of the heap could write to it. */
#include "guest.h"
#include <stdint.h>

static void stays_clear_of(unsigned char *base, size_t pages) {
    unsigned char *above = base + pages * PAGE;
    CHECK(mmap(above, PAGE, RW, ANON | MAP_FIXED_NOREPLACE, -1, 0) == above);
    CHECK(brk(above - PAGE) == 0);
    CHECK_ERRNO(brk(above), -1, ENOMEM);
    CHECK_ERRNO(brk(above + PAGE), -1, ENOMEM);
    CHECK(sbrk(0) == above - PAGE);
    CHECK(brk(above - 2 * PAGE + 100) == 0 && munmap(above, PAGE) == 0); /* within its last page it may move */
    CHECK(mmap(above - PAGE, PAGE, RW, ANON | MAP_FIXED_NOREPLACE, -1, 0) == above - PAGE);
    CHECK(brk(above - 2 * PAGE + 200) == 0 && munmap(above - PAGE, PAGE) == 0);
    CHECK(brk(above) == 0);
}

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
    unsigned char *start = (unsigned char *)(((uintptr_t)sbrk(0) + 2 * MIB - 1) & ~(2 * MIB - 1));
    CHECK(brk(start) == 0);
    stays_clear_of(start, 4);
    stays_clear_of(start, 512);
    stays_clear_of(start, 1500);
    churn(1, 300, 100 * KIB);
    return ok();
}

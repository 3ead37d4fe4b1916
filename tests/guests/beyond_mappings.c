/* Nothing is accessible that was not asked for: just behind a mapping, beyond the heap, between pools.
 * Argument: how many bytes beyond the break the library may have opened (a whole tile), 0 natively. */
#include "guest.h"

int main(int argc, char **argv) {
    size_t slack = argc > 1 ? (size_t)atol(argv[1]) : 0;
    CHECK(malloc(1000));
    uintptr_t end = ((uintptr_t)sbrk(0) + PAGE - 1) & ~(PAGE - 1);
    for (size_t beyond = slack; beyond <= slack + 8 * MIB; beyond += 97 * PAGE)
        if (fault_signal((void *)(end + beyond), READ_ACCESS) != SIGSEGV)
            FAIL("heap: readable %zu bytes beyond the break %p", beyond, sbrk(0));
    /* A mapping with holes around it: unmapping both neighbours leaves both sides closed. */
    for (size_t bytes = PAGE; bytes <= 8 * MIB; bytes = bytes * 3 / PAGE * PAGE) {
        unsigned char *p = map_anon(bytes + 2 * PAGE);
        CHECK(munmap(p, PAGE) == 0 && munmap(p + PAGE + bytes, PAGE) == 0);
        CHECK(fault_signal(p, READ_ACCESS) == SIGSEGV);
        CHECK(fault_signal(p + PAGE + bytes, READ_ACCESS) == SIGSEGV);
        fill(p + PAGE, bytes, 1);
        CHECK(fault_signal(p, WRITE_ACCESS) == SIGSEGV);
        CHECK(fault_signal(p + PAGE + bytes, WRITE_ACCESS) == SIGSEGV);
    }
    return ok();
}

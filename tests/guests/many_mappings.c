/* Tens of thousands of mappings, close to vm.max_map_count, from a program that natively gets away with it. */
#include "guest.h"

int main(void) {
    enum { PIECES = 20000 };
    size_t bytes = 2 * PIECES * PAGE;
    unsigned char *p = map_anon(bytes);
    for (size_t i = 0; i < 2 * PIECES; i++) p[i * PAGE] = (unsigned char)i;
    for (size_t i = 0; i < 2 * PIECES; i += 2) CHECK(mprotect(p + i * PAGE, PAGE, PROT_READ) == 0);
    for (size_t i = 0; i < 2 * PIECES; i++) CHECK(p[i * PAGE] == (unsigned char)i);
    CHECK(fault_signal(p, WRITE_ACCESS) == SIGSEGV && fault_signal(p + PAGE, WRITE_ACCESS) == 0);
    unsigned char *q = map_anon(5 * MIB);
    CHECK(all_zero(q, 5 * MIB));
    churn(1, 300, 300 * KIB);
    for (size_t i = 0; i < 2 * PIECES; i += 2) CHECK(munmap(p + i * PAGE, PAGE) == 0);
    for (size_t i = 3; i < 2 * PIECES; i += 2) CHECK(p[i * PAGE] == (unsigned char)i);
    CHECK(munmap(p, bytes) == 0);
    p = map_anon(bytes);
    CHECK(all_zero(p, 8 * MIB));
    return ok();
}

/* A program that is not position-independent (-no-pie) and keeps pointers to its heap in 32 bits, as old programs do that call malloc
 * undeclared: natively the heap follows its data, below 4 GiB. test_guests_placement has it built and run. */
#include "guest.h"

int main(void) {
    for (unsigned i = 1; i < 200; i++) {
        unsigned kept = (unsigned)(uintptr_t)malloc(i * 100);
        unsigned char *p = (unsigned char *)(uintptr_t)kept;
        fill(p, i * 100, i);
        CHECK(holds(p, i * 100, i));
    }
    return ok();
}

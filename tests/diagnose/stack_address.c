// Speed depends on the stack's address: the work done follows bits 6 to 9 of it, as conflicts in a cache would.
#include "work.h"

int main(void) {
    volatile char here;
    work(12 + 2 * (((uintptr_t)&here >> 6) & 15));
}

/* A program that reserves as much address space as malloc does for an arena, and opens it bit by bit, has a guard behind
 * what it opened. Regression: under 2M pages the rest of the tile was opened as well. */
#include "guest.h"

static sigjmp_buf jump;
static void on_fault(int number) { siglongjmp(jump, number); }

static int writes(volatile unsigned char *p) {
    if (sigsetjmp(jump, 1)) return 0;
    *p = 1;
    return 1;
}

int main(void) {
    CHECK(signal(SIGSEGV, on_fault) != SIG_ERR);
    for (size_t bytes = 64 * MIB; bytes <= 128 * MIB; bytes *= 2) {
        unsigned char *p = mmap(NULL, bytes, PROT_NONE, ANON | MAP_NORESERVE, -1, 0);
        CHECK(p != MAP_FAILED);
        for (size_t open = 64 * KIB; open <= MIB; open += 64 * KIB) {
            CHECK(mprotect(p + open - 64 * KIB, 64 * KIB, RW) == 0);
            CHECK(writes(p + open - 1) && !writes(p + open));
        }
        CHECK(munmap(p, bytes) == 0);
    }
    return ok();
}

/* Advice has the kernel's own answers: guards go into any memory that is not locked, and less than 2 MiB is not
   collapsed. */
#include "guest.h"

#ifndef MADV_GUARD_INSTALL
#define MADV_GUARD_INSTALL 102 /* Linux 6.13 */
#endif
#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25 /* Linux 6.1 */
#endif

/* Whether this kernel has guards: memory behind a file's mapping is nobody's to govern. */
static int has_guards(void) {
    unsigned char *page = mmap(NULL, PAGE, RW, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(page != MAP_FAILED);
    int result = madvise(page, PAGE, MADV_GUARD_INSTALL);
    CHECK(munmap(page, PAGE) == 0);
    return result == 0;
}

static void advise(unsigned char *p, size_t total, int guards) {
    fill(p, total, 1);
    errno = 0;
    CHECK(madvise(p + 2 * PAGE, PAGE, MADV_COLLAPSE) == -1 && errno == EINVAL);
    if (guards) {
        CHECK(madvise(p, PAGE, MADV_GUARD_INSTALL) == 0);
        CHECK(fault_signal(p, READ_ACCESS) == SIGSEGV);
        CHECK(madvise(p, PAGE, MADV_GUARD_INSTALL + 1) == 0);
        CHECK(all_zero(p, PAGE));
    }
    CHECK(holds_from(p + PAGE, total - PAGE, 1, PAGE));
    fill(p, total, 2);
    CHECK(holds(p, total, 2));
}

/* Unknown advice is refused as such, also where nothing is mapped. */
static void unknown(void) {
    unsigned char *p = map_anon(MIB);
    CHECK_ERRNO(madvise(p, MIB, 9999), -1, EINVAL);
    CHECK(munmap(p, MIB) == 0);
    CHECK_ERRNO(madvise(p, MIB, 9999), -1, EINVAL);
    unsigned char *end = (unsigned char *)(((uintptr_t)sbrk(0) + 2 * PAGE - 1) & ~(PAGE - 1));
    CHECK_ERRNO(madvise(end, PAGE, 9999), -1, EINVAL);
}

int main(void) {
    unknown();
    int guards = has_guards();
    const size_t totals[] = {4 * PAGE, 2 * MIB, 5 * MIB + 7 * PAGE};
    for (size_t i = 0; i < 3; i++) {
        advise(map_anon(totals[i]), totals[i], guards);
        unsigned char *block;
        CHECK(posix_memalign((void **)&block, PAGE, totals[i]) == 0);
        advise(block, totals[i], guards);
        free(block);
    }
    /* Lengths beyond the end of all addresses, for advice that a policy on files answers by itself, too. */
    unsigned char *block = map_anon(PAGE);
    const int advice[] = {MADV_NORMAL, MADV_SEQUENTIAL, MADV_RANDOM, MADV_WILLNEED, MADV_DONTNEED};
    for (size_t i = 0; i < sizeof advice / sizeof *advice; i++) {
        CHECK_ERRNO(madvise(block, (size_t)0 - PAGE, advice[i]), -1, EINVAL);
        CHECK_ERRNO(madvise(block + 1, PAGE, advice[i]), -1, EINVAL);
    }
    return ok();
}

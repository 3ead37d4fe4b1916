/* Locked memory stays locked, and within the limit, however it grows; what is mapped after mlockall(MCL_FUTURE) is locked. Programs
 * keep secrets there. Regression: a locked block that could not grow within the limit was given memory that was not locked, and
 * blocks in memory that had been mapped ahead of mlockall were not locked at all. */
#include "lock_limit.h"
#include <sys/resource.h>

/* Reserved pages are never swapped; the kernel does not mark them. */
static int is_locked(const void *p, size_t bytes) { return is_all(p, bytes, " lo", " ht"); }

static void future(void) {
    unsigned char *before = map_anon(4 * PAGE), *heap = sbrk(4 * PAGE);
    CHECK(heap != (void *)-1);
    if (mlockall(MCL_FUTURE) != 0) return; /* beyond the limit */
    unsigned char *small = map_anon(16 * PAGE), *large = map_anon(300 * PAGE);
    CHECK(is_locked(small, 16 * PAGE) && is_locked(large, 300 * PAGE));
    small = mremap(small, 16 * PAGE, 40 * PAGE, MREMAP_MAYMOVE);
    CHECK(small != MAP_FAILED && is_locked(small, 40 * PAGE));
    heap = sbrk(64 * PAGE);
    CHECK(heap != (void *)-1);
    uintptr_t first = ((uintptr_t)heap + PAGE - 1) & ~(PAGE - 1);
    CHECK(is_locked((void *)first, 60 * PAGE));
    CHECK(munlockall() == 0);
    CHECK(munmap(before, 4 * PAGE) == 0 && munmap(small, 40 * PAGE) == 0 && munmap(large, 300 * PAGE) == 0);
}

static void grows(int flags) {
    unsigned char *p = map_anon(8 * PAGE);
    size_t pages = 8;
    if (mlock2(p, 8 * PAGE, flags) != 0) return; /* the limit is used up, by a policy that pins */
    for (size_t wanted = 10; wanted < 40; wanted += 2) {
        unsigned char *grown = mremap(p, pages * PAGE, wanted * PAGE, wanted % 4 ? MREMAP_MAYMOVE : 0);
        if (grown == MAP_FAILED) {
            CHECK(errno == EAGAIN || errno == ENOMEM);
            CHECK(wanted > 16 || errno == ENOMEM); /* far below the limit there may be no room */
            continue;
        }
        CHECK(wanted <= 16 || has_reserved_pages());
        CHECK(is_locked(grown, wanted * PAGE));
        p = grown;
        pages = wanted;
    }
    CHECK(munmap(p, pages * PAGE) == 0);
}

int main(void) {
    future();
    int pins = status_kib("VmLck:") > 0; /* by the policy */
    obey_lock_limit();
    struct rlimit limit = {16 * PAGE, 16 * PAGE};
    CHECK(setrlimit(RLIMIT_MEMLOCK, &limit) == 0);
    grows(0);
    grows(MLOCK_ONFAULT);
    CHECK(munlockall() == 0);
    CHECK(pins || status_kib("VmLck:") == 0);
    return ok();
}

/* Memory that grows by mremap, far beyond the limit on locked memory, which a policy that pins must not turn into a limit
 * on this. Its contents stay; it can be unmapped. */
#include "frames.h"
#include <sys/resource.h>

int main(void) {
    struct rlimit limit;
    CHECK(getrlimit(RLIMIT_MEMLOCK, &limit) == 0);
    size_t pages = 16;
    unsigned char *p = map_anon(pages * PAGE);
    write_tags(p, pages, 1);
    for (int round = 0; round < 12; round++) {
        unsigned char *q = mremap(p, pages * PAGE, 2 * pages * PAGE, MREMAP_MAYMOVE);
        if (q == MAP_FAILED) FAIL("mremap to %zu pages; at most %zu bytes may be locked", 2 * pages, (size_t)limit.rlim_cur);
        check_tags(q, pages, 1);
        for (size_t i = pages; i < 2 * pages; i += 50) write_tag(q, i, 1);
        p = q;
        pages *= 2;
        p = mremap(p, pages * PAGE, (pages / 2) * PAGE, MREMAP_MAYMOVE);
        CHECK(p != MAP_FAILED);
        pages /= 2;
        for (size_t i = pages / 2; i < pages; i++) write_tag(p, i, 1);
        check_tags(p, 16, 1);
        p = mremap(p, pages * PAGE, (pages + pages / 2) * PAGE, MREMAP_MAYMOVE);
        CHECK(p != MAP_FAILED);
        for (size_t i = pages; i < pages + pages / 2; i++) write_tag(p, i, 1);
        check_tags(p, pages + pages / 2, 1);
        pages += pages / 2;
    }
    CHECK(munmap(p, pages * PAGE) == 0);
    return ok();
}

/* Memory that is in memory already is locked and populated: nothing has to be brought in. (The test counts what the library
 * tries.) Of a block that is in memory in part, the rest comes. */
#include "frames.h"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

enum { PAGES = 8192, PARTS = 512 };

int main(void) {
    unsigned char *p = map_anon(PAGES * PAGE);
    write_tags(p, PAGES, 7);
    /* A limit on locked memory may refuse it. */
    if (mlock(p, PAGES * PAGE) == 0) CHECK(munlock(p, PAGES * PAGE) == 0);
    if (madvise(p, PAGES * PAGE, MADV_POPULATE_WRITE) != 0) CHECK(errno == EINVAL);
    check_tags(p, PAGES, 7);
    CHECK_PLACED(p, PAGES);
    unsigned char *q = map_anon(PARTS * PAGE);
    for (size_t i = 0; i < PARTS; i += i % 7 + 1) q[i * PAGE] = 1;
    if (madvise(q, PARTS * PAGE, MADV_POPULATE_WRITE) == 0) {
        CHECK(resident_pages(q, PARTS) == PARTS);
        CHECK_PLACED(q, PARTS);
    }
    return ok();
}

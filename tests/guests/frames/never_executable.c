/* Where memory must not become executable (PR_SET_MDWE, as systemd's MemoryDenyWriteExecute=), pages can still not be moved
 * to read-only memory. The attempts leave nothing behind: what is touched afterwards is placed, and nothing is locked. */
#include "frames.h"
#include <sys/prctl.h>

#ifndef PR_SET_MDWE
#define PR_SET_MDWE 65
#endif

enum { READ_ONLY = 64, PAGES = 2048 };

static long locked_kb(void) {
    char line[256];
    long locked = -1;
    FILE *status = fopen("/proc/self/status", "re");
    CHECK(status);
    while (fgets(line, sizeof line, status)) sscanf(line, "VmLck: %ld", &locked);
    CHECK(fclose(status) == 0);
    return locked;
}

int main(void) {
    long locked = locked_kb();
    if (prctl(PR_SET_MDWE, 1, 0, 0, 0) != 0) return ok(); /* before Linux 6.3 */
    volatile unsigned char *closed = mmap(NULL, READ_ONLY * PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(closed != MAP_FAILED);
    for (size_t i = 0; i < READ_ONLY; i++) CHECK(closed[i * PAGE] == 0);
    unsigned char *p = map_anon(PAGES * PAGE);
    write_tags(p, PAGES, 3);
    check_tags(p, PAGES, 3);
    CHECK_PLACED(p, PAGES);
    if (locked == 0 && locked_kb() != 0) FAIL("%ld KiB are locked", locked_kb());
    return ok();
}

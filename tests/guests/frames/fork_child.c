/* fork: the child sees the parent's memory, shares nothing with it after a write, and what it touches first is placed
 * for it as well; so is what the parent touches afterwards. Children of children, too. */
#include "frames.h"

static unsigned char *shared, *untouched, *common;
enum { PAGES = 200 };

static int child(int depth) {
    check_tags(shared, PAGES, 1);
    write_tags(shared, PAGES / 2, 100); /* copied: those frames are the kernel's choice */
    check_tags(shared, PAGES / 2, 100);
    CHECK(all_zero(untouched, PAGES * PAGE)); /* mapped by the parent, touched by nobody: the child's own now */
    CHECK_PLACED(untouched, PAGES);
    memset(untouched, 0x77, PAGES * PAGE);
    unsigned char *own = map_anon(PAGES * PAGE);
    CHECK(all_zero(own, PAGES * PAGE));
    write_tags(own, PAGES, 7);
    check_tags(own, PAGES, 7);
    CHECK_PLACED(own, PAGES);
    own = mremap(own, PAGES * PAGE, 3 * PAGES * PAGE, MREMAP_MAYMOVE);
    CHECK(own != MAP_FAILED);
    check_tags(own, PAGES, 7);
    write_tags(own, 3 * PAGES, 7);
    CHECK_MOVED(own, 3 * PAGES);
    __atomic_add_fetch((int *)common, 1, __ATOMIC_RELAXED);
    if (depth > 0) {
        memset(untouched, 0, PAGES * PAGE);
        CHECK(madvise(untouched, PAGES * PAGE, MADV_DONTNEED) == 0);
        write_tags(shared, PAGES, 1);
        pid_t pid = fork();
        if (pid == 0) exit(child(depth - 1)); /* with its handlers */
        CHECK(wait_for(pid) == 0);
        check_tags(own, 3 * PAGES, 7);
    }
    churn(4, 200, 200 * KIB);
    CHECK(munmap(own, 3 * PAGES * PAGE) == 0);
    return 0;
}

int main(void) {
    common = mmap(NULL, PAGE, RW, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(common != MAP_FAILED);
    shared = map_anon(PAGES * PAGE);
    untouched = map_anon((PAGES + 1) * PAGE) + PAGE;
    CHECK(mprotect(untouched - PAGE, PAGE, PROT_NONE) == 0); /* nothing is placed ahead from what lies below */
    write_tags(shared, PAGES, 1);
    for (int i = 0; i < 6; i++) {
        pid_t pid = fork();
        if (pid == 0) exit(child(i % 3));
        unsigned char *mine = map_anon(PAGES * PAGE); /* while the child runs */
        write_tags(mine, PAGES, 9);
        check_tags(mine, PAGES, 9);
        CHECK_PLACED(mine, PAGES);
        CHECK(wait_for(pid) == 0);
        check_tags(shared, PAGES, 1);
        CHECK(munmap(mine, PAGES * PAGE) == 0);
    }
    CHECK(all_zero(untouched, PAGES * PAGE));
    CHECK_PLACED(untouched, PAGES);
    CHECK_PLACED(shared, PAGES); /* the parent never wrote again: its frames are still those */
    CHECK(*(int *)common == 12);
    /* Many at once. */
    pid_t pids[12];
    for (int i = 0; i < 12; i++)
        if ((pids[i] = fork()) == 0) {
            unsigned char *own = map_anon(50 * PAGE);
            write_tags(own, 50, (uint64_t)i << 32);
            check_tags(own, 50, (uint64_t)i << 32);
            CHECK_PLACED(own, 50);
            _exit(0);
        }
    for (int i = 0; i < 12; i++) CHECK(wait_for(pids[i]) == 0);
    return ok();
}

/* Memory that no user-space placement can reach behaves as ever beside memory that it does: shared, file-backed, hugetlb
 * where there is some, and the boundaries between them. */
#include "frames.h"

int main(void) {
    unsigned char *p = map_anon(64 * PAGE);
    unsigned char *shared = mmap(p + 16 * PAGE, 16 * PAGE, RW, MAP_SHARED | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    int exe = open("/proc/self/exe", O_RDONLY);
    unsigned char *file = mmap(p + 40 * PAGE, 2 * PAGE, RW, MAP_PRIVATE | MAP_FIXED, exe, 0);
    CHECK(shared == p + 16 * PAGE && file == p + 40 * PAGE);
    pid_t pid = fork();
    if (pid == 0) {
        write_tags(shared, 16, 7);
        _exit(0);
    }
    CHECK(wait_for(pid) == 0);
    check_tags(shared, 16, 7);
    CHECK(memcmp(file, "\177ELF", 4) == 0);
    file[0] = 'x'; /* a private copy */
    CHECK(file[0] == 'x' && file[1] == 'E');
    write_tags(p, 16, 1);
    write_tags(p + 32 * PAGE, 8, 2);
    write_tags(p + 42 * PAGE, 22, 3);
    check_tags(p, 16, 1);
    check_tags(p + 32 * PAGE, 8, 2);
    check_tags(p + 42 * PAGE, 22, 3);
    CHECK_PLACED(p, 16);
    CHECK_PLACED(p + 32 * PAGE, 8);
    CHECK_PLACED(p + 42 * PAGE, 22);
    /* Anonymous memory comes back where the others stood. */
    CHECK(mmap(p + 16 * PAGE, 26 * PAGE, RW, ANON | MAP_FIXED, -1, 0) == p + 16 * PAGE);
    CHECK(all_zero(p + 16 * PAGE, 26 * PAGE));
    CHECK_PLACED(p, 64);
    CHECK(munmap(p, 64 * PAGE) == 0);
    unsigned char *huge = mmap(NULL, 2 * MIB, RW, ANON | MAP_HUGETLB, -1, 0);
    if (huge != MAP_FAILED) {
        memset(huge, 1, 2 * MIB);
        CHECK(munmap(huge, 2 * MIB) == 0);
    }
    unsigned char *grows = mmap(NULL, 8 * PAGE, RW, ANON | MAP_GROWSDOWN, -1, 0);
    CHECK(grows != MAP_FAILED && all_zero(grows, 8 * PAGE) && munmap(grows, 8 * PAGE) == 0);
    return ok();
}

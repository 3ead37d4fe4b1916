/* Under RLIMIT_AS and RLIMIT_DATA a pool of pages can hardly grow: the program's memory comes all the same, wherever its
 * frames lie, as much of it as without the library; and what the limit refuses is refused with ENOMEM. */
#include "frames.h"
#include <sys/resource.h>

static long statm(int field) {
    long value[7];
    FILE *f = fopen("/proc/self/statm", "r");
    CHECK(f);
    for (int i = 0; i < 7; i++) CHECK(fscanf(f, "%ld", &value[i]) == 1);
    fclose(f);
    return value[field] * (long)PAGE;
}

static void limited(int resource) {
    unsigned char *early = map_anon(100 * PAGE);
    write_tags(early, 50, 1);
    size_t used = (size_t)statm(resource == RLIMIT_AS ? 0 : 5);
    struct rlimit to = {used + 100 * MIB, used + 100 * MIB};
    CHECK(setrlimit(resource, &to) == 0);
    unsigned char *p = map_anon(90 * MIB);
    size_t pages = 90 * MIB / PAGE;
    write_tags(p, pages, 2);
    check_tags(p, pages, 2);
    write_tags(early, 100, 1);
    check_tags(early, 100, 1);
    CHECK_ERRNO(mmap(NULL, 64 * MIB, RW, ANON, -1, 0), MAP_FAILED, ENOMEM);
    CHECK(madvise(p, 90 * MIB, MADV_DONTNEED) == 0);
    write_tags(p, pages, 3);
    check_tags(p, pages, 3);
    CHECK(munmap(p, 60 * MIB) == 0);
    check_tags_from(p + 60 * MIB, pages / 3, 3, 60 * MIB / PAGE);
    churn(1, 300, 200 * KIB);
    pid_t pid = fork();
    if (pid == 0) {
        unsigned char *own = map_anon(10 * MIB);
        write_tags(own, 10 * MIB / PAGE, 4);
        check_tags(own, 10 * MIB / PAGE, 4);
        exit(0);
    }
    CHECK(wait_for(pid) == 0);
    exit(0);
}

int main(void) {
    pid_t pid = fork();
    if (pid == 0) limited(RLIMIT_AS);
    CHECK(wait_for(pid) == 0);
    pid = fork();
    if (pid == 0) limited(RLIMIT_DATA);
    CHECK(wait_for(pid) == 0);
    return ok();
}

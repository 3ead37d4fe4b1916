/* A program that mixes libc's calls with system calls of its own, which the library cannot see. */
#include "guest.h"
#include <sys/syscall.h>

static unsigned char *raw_map(void *at, size_t bytes, int flags) {
    return (unsigned char *)syscall(SYS_mmap, at, bytes, RW, flags, -1, 0);
}

int main(void) {
    for (int i = 0; i < 3; i++) {
        /* Mapped raw, unmapped by libc. */
        unsigned char *p = raw_map(NULL, 3 * MIB, ANON);
        CHECK(p != MAP_FAILED && all_zero(p, 3 * MIB));
        fill(p, 3 * MIB, 1);
        CHECK(munmap(p, 3 * MIB) == 0);
        /* Mapped by libc, unmapped raw: the address may be handed out again, and must then be zero. */
        unsigned char *q = map_anon(3 * MIB);
        fill(q, 3 * MIB, 2);
        CHECK(syscall(SYS_munmap, q, 3 * MIB) == 0 || (has_reserved_pages() && errno == EINVAL));
        unsigned char *r = map_anon(3 * MIB);
        CHECK(all_zero(r, 3 * MIB));
        fill(r, 3 * MIB, 3);
        /* Put raw where the library might think there is room: it must not be trampled on. */
        unsigned char *s = raw_map(q, PAGE, ANON | MAP_FIXED_NOREPLACE);
        if (s != MAP_FAILED) s[0] = 99;
        unsigned char *many[20];
        for (int j = 0; j < 20; j++) {
            many[j] = map_anon(MIB);
            CHECK(all_zero(many[j], MIB));
            fill(many[j], MIB, 4 + j);
        }
        if (s != MAP_FAILED) CHECK(s[0] == 99 && munmap(s, PAGE) == 0);
        CHECK(holds(r, 3 * MIB, 3));
        for (int j = 0; j < 20; j++) CHECK(holds(many[j], MIB, 4 + j) && munmap(many[j], MIB) == 0);
        CHECK(munmap(r, 3 * MIB) == 0);
    }
    churn(1, 300, 300 * KIB);
    return ok();
}

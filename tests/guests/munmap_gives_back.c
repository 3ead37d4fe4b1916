/* Unmapped memory is given back: resident memory returns to where it was, from the middle too.
 * GUEST_POOL_BYTES: what a pool of pages may keep of it, at most; the mapping is then the larger. */
#include "guest.h"

static long resident_bytes(void) {
    char line[200];
    long kib, sum = 0;
    FILE *f = fopen("/proc/self/smaps_rollup", "r");
    CHECK(f);
    while (fgets(line, sizeof line, f)) /* reserved huge pages are not part of Rss */
        if (sscanf(line, "Rss: %ld", &kib) == 1 || sscanf(line, "Private_Hugetlb: %ld", &kib) == 1) sum += kib;
    fclose(f);
    return sum * (long)KIB;
}

int main(void) {
    const char *pool = getenv("GUEST_POOL_BYTES");
    size_t kept = pool ? strtoull(pool, NULL, 10) : 0, bytes = 64 * MIB + 3 * kept;
    unsigned char *keep_low = map_anon(4 * MIB), *p = map_anon(bytes), *keep_high = map_anon(4 * MIB);
    memset(keep_low, 1, 4 * MIB);
    memset(keep_high, 1, 4 * MIB);
    memset(p, 1, bytes);
    long full = resident_bytes();
    CHECK(munmap(p + 8 * MIB, bytes - 16 * MIB) == 0);
    CHECK(resident_bytes() <= full - (long)(bytes - 20 * MIB - kept));
    CHECK(munmap(p, bytes) == 0);
    CHECK(resident_bytes() <= full - (long)(bytes - 4 * MIB - kept));
    for (int i = 0; i < 100; i++) { /* 100 x 16 MiB would not go unnoticed */
        p = map_anon(16 * MIB);
        memset(p, 1, 16 * MIB / 8);
        CHECK(munmap(p, 16 * MIB) == 0);
    }
    CHECK(resident_bytes() <= full);
    void *chunks[100];
    for (int i = 0; i < 100; i++) CHECK((chunks[i] = memset(malloc(100 * KIB), 1, 100 * KIB)) != NULL);
    full = resident_bytes();
    for (int i = 0; i < 100; i++) free(chunks[i]);
    /* The trimmed top of the heap, unless a pool keeps it; and the pool may just have been filled up. */
    CHECK(resident_bytes() <= full + (kept ? (long)kept : -5 * (long)MIB));
    return ok();
}

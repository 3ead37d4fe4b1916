/* Large alignments: posix_memalign to 64 MiB, and the map-more-and-trim trick. */
#include "guest.h"

int main(void) {
    for (size_t alignment = 4 * KIB; alignment <= 64 * MIB; alignment *= 4) {
        void *p = NULL;
        CHECK(posix_memalign(&p, alignment, 3 * PAGE) == 0 && (uintptr_t)p % alignment == 0);
        fill(p, 3 * PAGE, 1);
        void *q = aligned_alloc(alignment, alignment);
        CHECK(q && (uintptr_t)q % alignment == 0 && holds(p, 3 * PAGE, 1));
        memset(q, 1, 10000 < alignment ? 10000 : alignment);
        free(q);
        free(p);
        unsigned char *raw = map_anon(2 * alignment);
        unsigned char *aligned = (unsigned char *)(((uintptr_t)raw + alignment - 1) & ~(alignment - 1));
        if (aligned > raw) CHECK(munmap(raw, (size_t)(aligned - raw)) == 0);
        if (raw + 2 * alignment > aligned + alignment)
            CHECK(munmap(aligned + alignment, (size_t)(raw + alignment - aligned)) == 0);
        CHECK(all_zero(aligned, alignment < 4 * MIB ? alignment : 4 * MIB));
        fill(aligned, PAGE, 2);
        CHECK(is_gone(aligned + alignment) || raw == aligned);
        CHECK(munmap(aligned, alignment) == 0);
    }
    return ok();
}

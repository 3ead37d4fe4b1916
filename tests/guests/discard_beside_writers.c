/* Parts of memory are discarded, protected, replaced and locked while other threads write to their neighbours: every call has
 * its effect, and no write is lost. Regression: on reserved pages such calls failed with ENOMEM. */
#include "guest.h"
#include <stdatomic.h>

enum { WRITERS = 2, ROUNDS = 12 };
static const size_t BYTES = 2 * MIB, PART = 64 * KIB;
static unsigned char *block;
static atomic_int stop;

/* Each has a page of its own, a counter in each of its words. */
static void *write_on(void *number) {
    volatile uint64_t *words = (uint64_t *)(block + BYTES - ((size_t)number + 1) * PAGE);
    uint64_t turn = 0;
    while (!atomic_load(&stop)) {
        turn++;
        for (size_t i = 0; i < PAGE / sizeof *words; i++) words[i] = turn;
        for (size_t i = 0; i < PAGE / sizeof *words; i++) CHECK(words[i] == turn);
    }
    return NULL;
}

static int all(const unsigned char *part, unsigned char value) {
    for (size_t i = 0; i < PART; i++)
        if (part[i] != value) return 0;
    return 1;
}

int main(void) {
    for (int round = 0; round < ROUNDS; round++) {
        pthread_t writer[WRITERS];
        block = map_anon(BYTES);
        memset(block, 7, BYTES - WRITERS * PAGE);
        atomic_store(&stop, 0);
        for (size_t i = 0; i < WRITERS; i++) CHECK(pthread_create(&writer[i], NULL, write_on, (void *)i) == 0);
        unsigned char *part = block + PART;
        switch (round % 4) {
        case 0:
            CHECK(madvise(part, PART, MADV_DONTNEED) == 0 && all(part, 0));
            break;
        case 1:
            CHECK(mmap(part, PART, RW, ANON | MAP_FIXED, -1, 0) == part && all(part, 0));
            break;
        case 2:
            CHECK(mprotect(part, PART, PROT_READ) == 0 && all(part, 7));
            CHECK(mprotect(part, PART, RW) == 0);
            break;
        default:
            CHECK(madvise(part, PART, MADV_DONTFORK) == 0 && all(part, 7));
        }
        CHECK(all(block, 7) && all(part + PART, 7));
        usleep(2000);
        atomic_store(&stop, 1);
        for (size_t i = 0; i < WRITERS; i++) CHECK(pthread_join(writer[i], NULL) == 0);
        CHECK(munmap(block, BYTES) == 0);
    }
    return ok();
}

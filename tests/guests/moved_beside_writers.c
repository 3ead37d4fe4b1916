/* Memory is moved by mremap while another thread writes numbers to its words: each number is at the new place, or, where the old
 * place stays mapped, there. Without it the writer gets SIGSEGV. Regression: reserved pages were copied while it wrote, and what it
 * wrote between the copy and the removal was lost. */
#include "guest.h"
#include <stdatomic.h>

enum { ROUNDS = 6, FREED = 64 * 1024, WORDS = (2 * 1024 * 1024 - FREED) / sizeof(uint64_t) };
enum move { LEFT, LEFT_FIXED, FIXED, GROWN, MOVES };
static const size_t BYTES = WORDS * sizeof(uint64_t);
static volatile uint64_t *words;
static atomic_size_t written;
static atomic_int stop;
static sigjmp_buf refused;

static void on_refusal(int signal_number) { siglongjmp(refused, signal_number); }

static void *write_on(void *unused) {
    if (sigsetjmp(refused, 1)) return unused;
    for (size_t i = 0; i < WORDS && !atomic_load(&stop); i++) {
        words[i] = i + 1;
        atomic_store(&written, i + 1);
        for (volatile int pause = 0; pause < 30; pause++) {}
    }
    return NULL;
}

static void move_once(enum move move) {
    unsigned char *block = map_anon(FREED + BYTES), *target = mmap(NULL, 3 * BYTES, PROT_NONE, ANON, -1, 0);
    unsigned char *next = mmap(block + FREED + BYTES, PAGE, RW, ANON, -1, 0); /* there is no room to grow */
    CHECK(target != MAP_FAILED && next != MAP_FAILED);
    memset(block, 0, FREED + BYTES);
    CHECK(munmap(block, FREED) == 0); /* the rest of a reserved page cannot be moved as it is */
    words = (uint64_t *)(block + FREED);
    atomic_store(&written, 0);
    atomic_store(&stop, 0);
    pthread_t writer = start(write_on, NULL);
    while (atomic_load(&written) < WORDS / 8) {}
    int flags = MREMAP_MAYMOVE | (move == LEFT || move == LEFT_FIXED ? MREMAP_DONTUNMAP : 0) |
                (move == LEFT_FIXED || move == FIXED ? MREMAP_FIXED : 0);
    uint64_t *moved = mremap((void *)words, BYTES, move == GROWN ? 3 * BYTES : BYTES, flags, target);
    if (moved == MAP_FAILED) FAIL("move %d", move);
    usleep(1000);
    atomic_store(&stop, 1);
    CHECK(pthread_join(writer, NULL) == 0);
    for (size_t i = 0; i < written; i++)
        if (moved[i] != i + 1 && !(flags & MREMAP_DONTUNMAP && words[i] == i + 1)) FAIL("move %d: word %zu of %zu is lost", move, i, written);
    CHECK(munmap(moved, move == GROWN ? 3 * BYTES : BYTES) == 0);
    if (flags & MREMAP_DONTUNMAP) CHECK(munmap((void *)words, BYTES) == 0);
    CHECK(munmap(target, 3 * BYTES) == 0 && munmap(next, PAGE) == 0);
}

int main(void) {
    struct sigaction act = {.sa_handler = on_refusal};
    CHECK(sigaction(SIGSEGV, &act, NULL) == 0);
    for (int round = 0; round < ROUNDS * MOVES; round++) move_once((enum move)(round % MOVES));
    return ok();
}

/* One page after another in an order of the guest's own, nothing else touched in between: virtual page, frame and
 * colour, in the order of the touches, one page a line. Arguments: pages, seed (0: ascending). */
#include "frames.h"

int main(int argc, char **argv) {
    CHECK(argc == 3 && policy.known);
    size_t pages = strtoull(argv[1], NULL, 10);
    uint64_t seed = strtoull(argv[2], NULL, 10);
    size_t *turn = malloc(pages * sizeof *turn);
    uint64_t *words = malloc(pages * sizeof *words);
    CHECK(turn && words);
    memset(words, 1, pages * sizeof *words);
    for (size_t i = 0; i < pages; i++) turn[i] = i;
    for (size_t i = pages; seed && i > 1; i--) {
        size_t j = random_next(&seed) % i, kept = turn[i - 1];
        turn[i - 1] = turn[j];
        turn[j] = kept;
    }
    unsigned char *p = map_anon(pages * PAGE);
    for (size_t i = 0; i < pages; i++) *(volatile unsigned char *)(p + turn[i] * PAGE) = 1;
    read_pagemap(p, pages, words);
    for (size_t i = 0; i < pages; i++) {
        uint64_t word = words[turn[i]], frame = frame_in(word);
        CHECK(is_present(word) && frame != 0);
        printf("%#zx %#zx %zu\n", (size_t)((uintptr_t)p / PAGE + turn[i]), (size_t)frame, (size_t)colour_of(frame));
    }
    return 0;
}

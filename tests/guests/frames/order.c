/* One page after another in an order of the guest's own, nothing else touched in between: the colours, in the order of
 * the touches, one a line. Arguments: pages, seed (0: ascending). */
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
        CHECK(is_present(words[turn[i]]) && frame_in(words[turn[i]]));
        printf("%zu\n", (size_t)colour_of(frame_in(words[turn[i]])));
    }
    return 0;
}

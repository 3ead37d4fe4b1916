/* A program that gives a hint has a child that shares its memory (clone with CLONE_VM) and outlives it. Regression: without a
 * policy nobody ended the engine at the program's end, and the child waited for ever for pages that it touched first. */
#include "forks.h"
#include "../frames/outlived.h"

static void give_a_hint(void) {
    struct pagelab_hint hint = hint_of(PAGELAB_PAGE_COLORING, 8);
    CHECK_API(pagelab_set_range(fresh, FRESH, &hint), answer);
}

int main(int argc, char **argv) {
    read_arguments(argc, argv);
    return is_outlived("exit", give_a_hint);
}

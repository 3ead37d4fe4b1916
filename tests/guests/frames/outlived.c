/* A child that shares the program's memory (clone with CLONE_VM) outlives it. Argument: how the program ends. Regression: the
 * child waited for ever for pages that it touched first, since the thread that placed them had ended with its parent. */
#include "outlived.h"

int main(int argc, char **argv) {
    CHECK(argc == 2);
    return is_outlived(argv[1], NULL);
}

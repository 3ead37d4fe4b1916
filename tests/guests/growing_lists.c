/* Lists that grow by an eighth, in turn, as CPython's do: blocks that block each other, so that realloc moves them (glibc
 * by mremap). Argument: MiB of each in the end. Contents are kept, and all is touched and stays. */
#include "guest.h"

#define LISTS 4

int main(int argc, char **argv) {
    size_t most = (argc > 1 ? (size_t)atol(argv[1]) : 8) * MIB, bytes = 150 * KIB, filled[LISTS] = {0};
    unsigned char *list[LISTS] = {0};
    while (bytes < most) {
        bytes += bytes / 8 + 8;
        for (int i = 0; i < LISTS; i++) {
            list[i] = realloc(list[i], bytes);
            CHECK(list[i]);
            for (; filled[i] < bytes; filled[i]++) list[i][filled[i]] = (unsigned char)(filled[i] * 7 + (size_t)i);
        }
    }
    for (int i = 0; i < LISTS; i++)
        for (size_t at = 0; at < bytes; at++) CHECK(list[i][at] == (unsigned char)(at * 7 + (size_t)i));
    return ok();
}

/* Memory of a known shape, for the tests that read placement from the record: argument heap MiB and mapped MiB,
 * all touched and kept until exit; prints where it lies, so that offsets can be compared between runs. */
#include "guest.h"

int main(int argc, char **argv) {
    size_t heap = (argc > 1 ? (size_t)atol(argv[1]) : 16) * MIB, mapped = (argc > 2 ? (size_t)atol(argv[2]) : 16) * MIB;
    unsigned char *h = sbrk((intptr_t)heap);
    CHECK(h != (void *)-1);
    memset(h, 1, heap);
    unsigned char *first = map_anon(mapped), *second = map_anon(3 * MIB);
    memset(first, 2, mapped);
    memset(second, 3, 3 * MIB);
    printf("heap %#lx\nfirst %#lx\nsecond %#lx\n", (unsigned long)h, (unsigned long)first, (unsigned long)second);
    return 0;
}

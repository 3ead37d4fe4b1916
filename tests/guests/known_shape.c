/* Memory of a known shape, for the tests that compare the record with what the kernel says. Arguments: heap MiB,
 * mapped MiB. All of it is touched and kept; prints where it lies, then /proc/self/smaps. */
#include "guest.h"

static void copy_to_stdout(const char *path) {
    static char buffer[65536];
    int fd = open(path, O_RDONLY);
    CHECK(fd >= 0);
    for (ssize_t n; (n = read(fd, buffer, sizeof buffer)) != 0;) CHECK(n > 0 && write(1, buffer, (size_t)n) == n);
    CHECK(close(fd) == 0);
}

int main(int argc, char **argv) {
    size_t heap = (argc > 1 ? (size_t)atol(argv[1]) : 16) * MIB, mapped = (argc > 2 ? (size_t)atol(argv[2]) : 16) * MIB;
    unsigned char *h = sbrk((intptr_t)heap);
    CHECK(h != (void *)-1);
    memset(h, 1, heap);
    unsigned char *first = map_anon(mapped), *second = map_anon(3 * MIB);
    memset(first, 2, mapped);
    memset(second, 3, 3 * MIB);
    dprintf(1, "heap %#lx\nfirst %#lx\nsecond %#lx\n", (unsigned long)h, (unsigned long)first, (unsigned long)second);
    copy_to_stdout("/proc/self/smaps");
    return 0;
}

/* Not for every policy: maps a file and prints how many of its pages are in the page cache after mapping, after
 * touching one page in the middle, and after touching all. Argument: the file. */
#include "guest.h"
#include <sys/stat.h>

static size_t resident(unsigned char *p, size_t bytes) {
    size_t pages = (bytes + PAGE - 1) / PAGE, count = 0;
    unsigned char *state = malloc(pages);
    CHECK(state && mincore(p, bytes, state) == 0);
    for (size_t i = 0; i < pages; i++) count += state[i] & 1;
    free(state);
    return count;
}

int main(int argc, char **argv) {
    struct stat info;
    CHECK(argc == 2);
    int fd = open(argv[1], O_RDONLY);
    CHECK(fd >= 0 && fstat(fd, &info) == 0);
    size_t bytes = (size_t)info.st_size;
    unsigned char *p = mmap(NULL, bytes, PROT_READ, MAP_PRIVATE, fd, 0);
    CHECK(p != MAP_FAILED);
    size_t mapped = resident(p, bytes);
    volatile unsigned char sum = p[bytes / 2];
    size_t one = resident(p, bytes);
    for (size_t at = 0; at < bytes; at += PAGE) sum += p[at];
    printf("%zu %zu %zu\n", mapped, one, resident(p, bytes));
    return 0;
}

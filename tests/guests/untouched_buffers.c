/* Buffers that were never touched are passed to system calls: the kernel finds zeros in them. */
#include "guest.h"
#include <fcntl.h>

int main(void) {
    int ends[2];
    CHECK(pipe(ends) == 0);
    unsigned char *mapped = map_anon(4 * MIB);
    unsigned char read_back[100];
    for (size_t at = 5000; at < 4 * MIB; at += 200 * KIB) {
        CHECK(write(ends[1], mapped + at, sizeof read_back) == (ssize_t)sizeof read_back);
        CHECK(read(ends[0], read_back, sizeof read_back) == (ssize_t)sizeof read_back);
        CHECK(all_zero(read_back, sizeof read_back));
    }
    return ok();
}

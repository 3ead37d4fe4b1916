/* File mappings, private and shared, under every fetch policy: right bytes, copy on write, SIGBUS past the end. */
#include "guest.h"

int main(void) {
    char path[] = "/tmp/pagelab-guest-XXXXXX";
    int fd = mkstemp(path);
    CHECK(fd >= 0 && unlink(path) == 0);
    size_t bytes = 3 * MIB + 1000;
    unsigned char *content = malloc(bytes);
    fill(content, bytes, 1);
    for (size_t done = 0; done < bytes;) {
        ssize_t n = write(fd, content + done, bytes - done);
        CHECK(n > 0);
        done += (size_t)n;
    }
    unsigned char *private = mmap(NULL, bytes, RW, MAP_PRIVATE, fd, 0);
    unsigned char *shared = mmap(NULL, bytes, RW, MAP_SHARED, fd, 0);
    unsigned char *inner = mmap(NULL, MIB, PROT_READ, MAP_SHARED, fd, (off_t)(MIB + PAGE));
    CHECK(private != MAP_FAILED && shared != MAP_FAILED && inner != MAP_FAILED);
    CHECK(memcmp(private, content, bytes) == 0 && memcmp(shared, content, bytes) == 0);
    CHECK(memcmp(inner, content + MIB + PAGE, MIB) == 0);
    private[5] = 99;
    CHECK(shared[5] == content[5]);
    shared[2 * MIB] = 77;
    CHECK(private[2 * MIB] == 77 && inner[MIB - PAGE] == 77);
    unsigned char byte;
    CHECK(pread(fd, &byte, 1, 2 * MIB) == 1 && byte == 77);
    CHECK(all_zero(private + bytes, PAGE - bytes % PAGE)); /* the rest of the last page */
    unsigned char *beyond = mmap(NULL, 5 * MIB, PROT_READ, MAP_SHARED, fd, 0);
    CHECK(beyond != MAP_FAILED && fault_signal(beyond + 4 * MIB, READ_ACCESS) == SIGBUS);
    CHECK(ftruncate(fd, MIB) == 0);
    CHECK(fault_signal(shared + 2 * MIB, READ_ACCESS) == SIGBUS);
    CHECK(memcmp(shared, content, MIB) == 0);
    CHECK(munmap(private, bytes) == 0 && munmap(shared, bytes) == 0);
    CHECK_ERRNO(mmap(NULL, PAGE, RW, MAP_SHARED, -1, 0), MAP_FAILED, EBADF);
    CHECK_ERRNO(mmap(NULL, PAGE, RW, MAP_PRIVATE, fd, 123), MAP_FAILED, EINVAL);
    return ok();
}

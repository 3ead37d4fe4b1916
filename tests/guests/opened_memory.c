/* What lies in a reservation may be anything, and giving access to it brings nothing in that the program would not have
 * brought in: no page of a file is written, none of memory without reservation comes, and memory that the program serves by
 * its own userfaultfd waits for the program. Regression: with prefaulting, mprotect populated it all, and hung on the last. */
#include "guest.h"
#include <linux/magic.h>
#include <linux/userfaultfd.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/syscall.h>

#define BYTES (8 * MIB)

static unsigned char *reserve(int more) {
    unsigned char *p = mmap(NULL, BYTES, PROT_NONE, ANON | more, -1, 0);
    CHECK(p != MAP_FAILED);
    return p;
}

static void file_in_a_reservation(void) {
    int file = open("/var/tmp", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    struct timespec old[2] = {{1000, 0}, {1000, 0}};
    struct statfs system;
    if (file < 0 || fstatfs(file, &system) != 0 || system.f_type == TMPFS_MAGIC) return; /* there, reading makes pages */
    CHECK(ftruncate(file, (off_t)BYTES) == 0 && futimens(file, old) == 0);
    unsigned char *p = reserve(0);
    CHECK(mmap(p, BYTES, PROT_READ, MAP_SHARED | MAP_FIXED, file, 0) == p);
    CHECK(mprotect(p, BYTES, RW) == 0);
    struct stat found;
    CHECK(fstat(file, &found) == 0 && found.st_blocks == 0 && found.st_mtime == 1000);
    CHECK(munmap(p, BYTES) == 0 && close(file) == 0);
}

static void without_reservation(void) {
    unsigned char *p = reserve(MAP_NORESERVE);
    CHECK(mprotect(p, BYTES, RW) == 0);
    unsigned char there[BYTES / PAGE];
    CHECK(mincore(p, BYTES, there) == 0);
    for (size_t i = 0; i < sizeof there; i++) CHECK((there[i] & 1) == 0);
    CHECK(munmap(p, BYTES) == 0);
}

static void *serve(void *of) {
    static unsigned char page[4096] __attribute__((aligned(4096)));
    struct uffd_msg message;
    memset(page, 42, PAGE);
    CHECK(read(*(int *)of, &message, sizeof message) == sizeof message);
    struct uffdio_copy copy = {.dst = message.arg.pagefault.address & ~(PAGE - 1), .src = (uintptr_t)page, .len = PAGE};
    CHECK(ioctl(*(int *)of, UFFDIO_COPY, &copy) == 0);
    return NULL;
}

static void served_by_the_program(void) {
    int uffd = (int)syscall(SYS_userfaultfd, O_CLOEXEC);
    struct uffdio_api api = {.api = UFFD_API};
    if (uffd < 0) return; /* not everybody may have one */
    CHECK(ioctl(uffd, UFFDIO_API, &api) == 0);
    unsigned char *p = reserve(0);
    struct uffdio_register range = {.range = {(uintptr_t)p, BYTES}, .mode = UFFDIO_REGISTER_MODE_MISSING};
    CHECK(ioctl(uffd, UFFDIO_REGISTER, &range) == 0);
    CHECK(mprotect(p, BYTES, RW) == 0);
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, serve, &uffd) == 0);
    CHECK(p[5 * PAGE + 7] == 42);
    CHECK(pthread_join(thread, NULL) == 0);
    CHECK(close(uffd) == 0 && munmap(p, BYTES) == 0);
}

int main(void) {
    file_in_a_reservation();
    without_reservation();
    served_by_the_program();
    return ok();
}

/* A program's userfaultfd takes what is mapped in the range at that time: what comes to lie in its holes later is plain memory.
 * Regression: memory mapped in advance was registered with the rest, and the first touch of a later block, or of new heap, waited for a
 * handler that knew nothing of it. */
#include "guest.h"
#include <linux/userfaultfd.h>
#include <sys/ioctl.h>

static int uffd;

/* Whether a MiB from `p` on, of which little is mapped, was registered. */
static int takes(unsigned char *p, unsigned long mode) {
    struct uffdio_register range = {.range = {(uintptr_t)p, MIB}, .mode = mode};
    if (ioctl(uffd, UFFDIO_REGISTER, &range) == 0) return 1;
    CHECK(errno == EINVAL || errno == EPERM); /* part of a reserved page; a kernel without that mode */
    return 0;
}

/* Not served by anybody. */
static void check_plain(const char *what, unsigned char *p) {
    alarm(10);
    *p = 1;
    alarm(0);
    if (!has_placed_frames() && is_all(p, PAGE, " um", " uw")) FAIL("%s is registered", what);
}

static void with(unsigned long mode) {
    unsigned char *end = (unsigned char *)(((uintptr_t)sbrk(0) + 2 * MIB) & ~(2 * MIB - 1));
    CHECK(brk(end + 64 * KIB) == 0);
    if (takes(end, mode)) {
        CHECK(brk(end + 128 * KIB) == 0);
        check_plain("new heap", end + 64 * KIB);
    }
    unsigned char *room = mmap(NULL, 8 * MIB, PROT_NONE, ANON | MAP_NORESERVE, -1, 0);
    CHECK(room != MAP_FAILED && munmap(room, 8 * MIB) == 0);
    CHECK(mmap(room, 64 * KIB, RW, ANON | MAP_FIXED_NOREPLACE, -1, 0) == room);
    if (takes(room, mode)) {
        unsigned char *next = mmap(room + 128 * KIB, 64 * KIB, RW, ANON | MAP_FIXED_NOREPLACE, -1, 0);
        CHECK(next == room + 128 * KIB);
        check_plain("a new block", next);
    }
    _exit(0);
}

int main(void) {
    const unsigned long modes[] = {UFFDIO_REGISTER_MODE_MISSING, UFFDIO_REGISTER_MODE_WP};
    for (int i = 0; i < 2; i++) {
        pid_t child = fork();
        if (child == 0) {
            struct uffdio_api api = {.api = UFFD_API};
            uffd = (int)syscall(SYS_userfaultfd, O_CLOEXEC);
            if (uffd < 0 || ioctl(uffd, UFFDIO_API, &api) != 0) _exit(0); /* not for this user */
            with(modes[i]);
        }
        CHECK(wait_at_most(30, child) == 0);
    }
    return ok();
}

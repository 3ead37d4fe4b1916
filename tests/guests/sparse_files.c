/* Holes in files that are their pages in memory (memfd, /dev/shm, /dev/zero shared): to map such a file changes nothing in it. Regression:
 * prefaulting gave the file all its pages, and a program that fills one of its mappings by a userfaultfd read zeros. */
#include "guest.h"
#include <linux/userfaultfd.h>
#include <sys/ioctl.h>
#include <sys/stat.h>

enum { PAGES = 2048 };
#define BYTES (PAGES * PAGE)

static size_t pages_of(int file) {
    struct stat found;
    CHECK(fstat(file, &found) == 0);
    return (size_t)found.st_blocks * 512 / PAGE;
}

static unsigned char *mapped(int file, int prot, int flags) {
    unsigned char *p = mmap(NULL, BYTES, prot, flags, file, 0);
    CHECK(p != MAP_FAILED);
    return p;
}

static void keeps_its_holes(int file, int has_huge_pages) {
    static const int flags[] = {MAP_SHARED, MAP_PRIVATE, MAP_SHARED | MAP_NORESERVE};
    CHECK(file >= 0 && ftruncate(file, BYTES) == 0 && pwrite(file, "content", 7, 5 * PAGE) == 7);
    size_t before = pages_of(file);
    CHECK(before == 1 || has_huge_pages);
    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++) {
        unsigned char *p = mapped(file, RW, flags[i]);
        if (pages_of(file) != before) FAIL("flags %x: %zu pages, not %zu", flags[i], pages_of(file), before);
        CHECK(memcmp(p + 5 * PAGE, "content", 8) == 0);
        CHECK(munmap(p, BYTES) == 0);
    }
    CHECK(lseek(file, 0, SEEK_CUR) == 0 && (lseek(file, 0, SEEK_DATA) == 5 * (off_t)PAGE || has_huge_pages));
    for (size_t i = 0; i < PAGES; i++) CHECK(pwrite(file, "content", 7, (off_t)(i * PAGE)) == 7);
    unsigned char *p = mapped(file, PROT_READ, MAP_SHARED);
    for (size_t i = 0; i < PAGES; i++) CHECK(memcmp(p + i * PAGE, "content", 8) == 0);
    CHECK(munmap(p, BYTES) == 0 && close(file) == 0);
}

static void zeros_come_when_touched(void) {
    static unsigned char present[PAGES];
    int file = open("/dev/zero", O_RDWR);
    unsigned char *p = mapped(file, RW, MAP_SHARED);
    CHECK(mincore(p, BYTES, present) == 0);
    for (size_t i = 0; i < PAGES; i++)
        if (present[i] & 1) FAIL("page %zu of /dev/zero is there before it is touched", i);
    CHECK(all_zero(p, BYTES) && munmap(p, BYTES) == 0 && close(file) == 0);
}

static void *serve(void *uffd) {
    static unsigned char page[4096] __attribute__((aligned(4096)));
    struct uffd_msg message;
    memset(page, 0xaa, sizeof page);
    while (read(*(int *)uffd, &message, sizeof message) == sizeof message) {
        struct uffdio_copy copy = {.dst = message.arg.pagefault.address & ~(PAGE - 1), .src = (uintptr_t)page, .len = PAGE};
        if (ioctl(*(int *)uffd, UFFDIO_COPY, &copy) != 0 && errno != EEXIST) FAIL("UFFDIO_COPY");
    }
    return NULL;
}

static void another_mapping_is_served(void) {
    static int uffd;
    struct uffdio_api api = {.api = UFFD_API, .features = UFFD_FEATURE_MISSING_SHMEM};
    uffd = (int)syscall(SYS_userfaultfd, O_CLOEXEC);
    if (uffd < 0 || ioctl(uffd, UFFDIO_API, &api) != 0) return; /* not for this user */
    start(serve, &uffd);
    int file = memfd_create("served", MFD_CLOEXEC);
    CHECK(file >= 0 && ftruncate(file, BYTES) == 0);
    unsigned char *p = mapped(file, RW, MAP_SHARED);
    struct uffdio_register range = {.range = {(uintptr_t)p, BYTES}, .mode = UFFDIO_REGISTER_MODE_MISSING};
    CHECK(ioctl(uffd, UFFDIO_REGISTER, &range) == 0);
    unsigned char *other = mapped(file, RW, MAP_SHARED);
    for (size_t i = 0; i < 64; i++)
        if (p[i * PAGE] != 0xaa || other[i * PAGE] != 0xaa) FAIL("page %zu holds %x", i, p[i * PAGE]);
    CHECK(munmap(p, BYTES) == 0 && munmap(other, BYTES) == 0 && close(file) == 0);
}

int main(void) {
    int has_huge_pages = 0;
    char setting[128] = "";
    int file = open("/sys/kernel/mm/transparent_hugepage/shmem_enabled", O_RDONLY);
    if (file >= 0 && read(file, setting, sizeof setting - 1) > 0) has_huge_pages = strstr(setting, "[never]") == NULL;
    if (file >= 0) close(file);
    keeps_its_holes(memfd_create("holes", MFD_CLOEXEC), has_huge_pages);
    char path[64];
    snprintf(path, sizeof path, "/dev/shm/guest-%d", (int)getpid());
    file = open(path, O_RDWR | O_CREAT | O_EXCL, 0600);
    if (file >= 0) { /* there may be no /dev/shm */
        CHECK(unlink(path) == 0);
        keeps_its_holes(file, has_huge_pages);
    }
    zeros_come_when_touched();
    another_mapping_is_served();
    return ok();
}

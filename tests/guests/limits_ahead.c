/* Where the limits have room for what the program has, no call is refused for what was mapped in advance: neither a limit on data, nor
 * the number of mappings. Regression: only mmap without an address, mremap that grows, and brk gave memory mapped in advance up;
 * mprotect, stacks of threads, MAP_FIXED and MREMAP_DONTUNMAP failed; and so did locks and other properties where the number of
 * mappings was the limit. */
#include "guest.h"
#include <linux/userfaultfd.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/uio.h>

#ifndef SYS_mseal
#define SYS_mseal 462
#endif

enum { BLOCKS = 40 };
#define BLOCK (2 * MIB + PAGE)
#define MORE (24 * MIB)

static unsigned char *block[BLOCKS], *shut, *old;

static size_t data_kib(void) {
    static char line[256];
    FILE *file = fopen("/proc/self/status", "r");
    size_t kib = 0;
    CHECK(file);
    while (fgets(line, sizeof line, file)) sscanf(line, "VmData: %zu", &kib);
    fclose(file);
    return kib;
}

static void *nothing(void *argument) { return argument; }

static void opens(void) { CHECK(mprotect(shut, MORE, RW) == 0); }
static void opens_part(void) {
    CHECK(mprotect(shut + MIB, MORE, RW) == 0);
    shut[MIB] = 1;
    CHECK_ERRNO(mprotect(shut, 2 * GIB, RW), -1, ENOMEM);
}
static void thread(void) {
    pthread_attr_t attributes;
    pthread_t id;
    CHECK(pthread_attr_init(&attributes) == 0 && pthread_attr_setstacksize(&attributes, MORE) == 0);
    errno = pthread_create(&id, &attributes, nothing, NULL);
    CHECK(errno == 0 && pthread_join(id, NULL) == 0);
}
static void fixed(void) {
    CHECK(munmap(shut, 64 * MIB) == 0);
    CHECK(mmap(shut, MORE, RW, ANON | MAP_FIXED, -1, 0) == shut);
}
static void fixed_over(void) { CHECK(mmap(shut + MIB, MORE, RW, ANON | MAP_FIXED, -1, 0) == shut + MIB); }
static void fixed_free(void) {
    CHECK(munmap(shut, 64 * MIB) == 0);
    CHECK(mmap(shut, MORE, RW, ANON | MAP_FIXED_NOREPLACE, -1, 0) == shut);
}
static void hinted(void) {
    unsigned char *low = (unsigned char *)(256 * GIB); /* (nothing lies there, natively or not) */
    CHECK(mmap(low, MORE, RW, ANON, -1, 0) == low);
}
static void leaves(void) {
    unsigned char *moved = mremap(old, MORE, MORE, MREMAP_MAYMOVE | MREMAP_DONTUNMAP, NULL);
    CHECK(moved != MAP_FAILED && *moved == 9 && *old == 0);
}
static void grows_in_place(void) {
    CHECK(munmap(shut, 64 * MIB) == 0);
    CHECK(mmap(shut, PAGE, RW, ANON | MAP_FIXED_NOREPLACE, -1, 0) == shut);
    CHECK(mremap(shut, PAGE, MORE, 0) == shut);
}

static void under_data_limit(void (*more)(void)) {
    shut = mmap(NULL, 64 * MIB, PROT_NONE, ANON, -1, 0);
    CHECK(shut != MAP_FAILED);
    old = NULL;
    if (more == leaves) *(old = map_anon(MORE)) = 9;
    /* What a policy takes (docs/preload.md); parts of reserved pages, which are not given up; a pool of frames. */
    size_t slack = has_placed_frames() ? 90 * MIB : has_reserved_pages() ? 40 * MIB : 6 * MIB;
    rlim_t most = data_kib() * KIB + BLOCKS * BLOCK + MORE + slack;
    struct rlimit limit = {most, most};
    CHECK(setrlimit(RLIMIT_DATA, &limit) == 0);
    for (int i = 0; i < BLOCKS; i++) *(block[i] = map_anon(BLOCK)) = (unsigned char)i;
    more();
    for (int i = 0; i < BLOCKS; i++) CHECK(*block[i] == i);
    _exit(0);
}

static size_t mappings(void) {
    static char text[65536];
    int file = open("/proc/self/maps", O_RDONLY);
    size_t lines = 0;
    CHECK(file >= 0);
    for (ssize_t n; (n = read(file, text, sizeof text)) > 0;)
        for (ssize_t i = 0; i < n; i++) lines += text[i] == '\n';
    close(file);
    return lines;
}

static void protects(unsigned char *p) { CHECK(mprotect(p, BLOCK, PROT_READ) == 0); }
static void advises(unsigned char *p) { CHECK(madvise(p, BLOCK, MADV_DONTDUMP) == 0); }

static int may_lock(void) {
    struct rlimit limit;
    CHECK(getrlimit(RLIMIT_MEMLOCK, &limit) == 0);
    return geteuid() == 0 || limit.rlim_cur >= BLOCKS * BLOCK;
}
static void locks(unsigned char *p) { CHECK(!may_lock() || mlock2(p, BLOCK, MLOCK_ONFAULT) == 0 || errno == EPERM); }
static void locks_now(unsigned char *p) { CHECK(!may_lock() || mlock(p, BLOCK) == 0 || errno == EPERM); }

/* Whether a call succeeded that kernels lack, or do not allow everyone. */
static int is_done_or_missing(long result) { return result == 0 || errno == ENOSYS || errno == EINVAL || errno == EPERM; }

static void binds(unsigned char *p) {
    unsigned long nodes = 1;
    CHECK(is_done_or_missing(syscall(SYS_mbind, p, BLOCK, 1 /* MPOL_PREFERRED */, &nodes, 2, 0)));
}
static void seals(unsigned char *p) { CHECK(is_done_or_missing(syscall(SYS_mseal, p, BLOCK, 0))); }
static void names(unsigned char *p) { CHECK(is_done_or_missing(prctl(0x53564d41 /* PR_SET_VMA */, 0, p, BLOCK, "x"))); }
static void advises_process(unsigned char *p) {
    struct iovec part = {p, BLOCK};
    int self = (int)syscall(SYS_pidfd_open, getpid(), 0);
    CHECK(is_done_or_missing(process_madvise(self, &part, 1, MADV_DONTDUMP, 0) == (ssize_t)BLOCK ? 0 : -1));
    close(self);
}
static void registers(unsigned char *p) {
    static int uffd = -1;
    struct uffdio_api api = {.api = UFFD_API};
    if (uffd < 0 && ((uffd = (int)syscall(SYS_userfaultfd, O_CLOEXEC)) < 0 || ioctl(uffd, UFFDIO_API, &api) != 0)) return;
    struct uffdio_register range = {.range = {(uintptr_t)p, BLOCK}, .mode = UFFDIO_REGISTER_MODE_WP};
    CHECK(is_done_or_missing(ioctl(uffd, UFFDIO_REGISTER, &range)));
}

/* With room for few mappings more, one for each block that is changed: what lies between two blocks takes none, nor do the others. */
static void with_few_mappings(size_t most, void (*change)(unsigned char *)) {
    enum { CHANGED = BLOCKS / 2, LEFT = CHANGED + 8 };
    for (int i = 0; i < BLOCKS; i++) *(block[i] = map_anon(BLOCK)) = (unsigned char)i;
    unsigned char *many = mmap(NULL, most * PAGE, RW, MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    CHECK(many != MAP_FAILED);
    size_t some = most - mappings() - LEFT;
    for (size_t i = 1; i < some; i += 2) CHECK(mprotect(many + i * PAGE, PAGE, PROT_READ) == 0);
    for (int i = 0; i < CHANGED; i++) change(block[i]);
    for (int i = 0; i < BLOCKS; i++) CHECK(*block[i] == i);
    CHECK(munmap(many, most * PAGE) == 0);
    _exit(0);
}

int main(void) {
    void (*const more[])(void) = {opens, opens_part, thread, fixed, fixed_over, fixed_free, hinted, leaves, grows_in_place};
    for (size_t i = 0; i < sizeof more / sizeof *more; i++) {
        pid_t child = fork();
        if (child == 0) under_data_limit(more[i]);
        if (wait_for(child) != 0) FAIL("case %zu of a limit on data", i);
    }
    size_t most = 0;
    FILE *file = fopen("/proc/sys/vm/max_map_count", "r");
    CHECK(file && fscanf(file, "%zu", &most) == 1 && fclose(file) == 0);
    /* (Parts of reserved pages become mappings of their own, and a pool of frames may grow by mappings.) */
    if (most > 200000 || has_reserved_pages() || has_placed_frames()) return ok();
    void (*const changes[])(unsigned char *) = {protects, advises, locks, locks_now, binds, seals, names, advises_process, registers};
    for (size_t i = 0; i < sizeof changes / sizeof *changes; i++) {
        pid_t child = fork();
        if (child == 0) with_few_mappings(most, changes[i]);
        if (wait_for(child) != 0) FAIL("case %zu of few mappings", i);
    }
    return ok();
}

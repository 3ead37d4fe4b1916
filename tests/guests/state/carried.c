/* What a block carried ends with the block. For every state that the kernel keeps with a mapping (linux/mm.h's VM_ flags,
 * linux/mman.h, mempolicy.h, userfaultfd.h, prctl.h) and every kind of memory: a block with that state is given back and
 * taken anew; printed is what the new block has. The lines must be the same natively and under every policy.
 * Argument: the only row to try, or none. */
#include "states.h"

#include <linux/userfaultfd.h>
#include <sys/ioctl.h>

#define MADV_GUARD_INSTALL 102 /* Linux 6.13 */
#define MAP_DROPPABLE 0x08     /* Linux 6.11 */
#define SYS_mseal 462          /* Linux 6.10 */

/* ---- kinds of memory ---- */

struct place {
    const char *name;
    size_t bytes;
    unsigned char *(*take)(size_t bytes);
    long (*give)(unsigned char *block, size_t bytes);
    unsigned char *(*again)(unsigned char *block, size_t bytes);
};

static unsigned char *take_mapping(size_t bytes) { return map_anon(bytes); }
static long give_mapping(unsigned char *block, size_t bytes) { return munmap(block, bytes) ? -errno : 0; }

static unsigned char *map_anew(unsigned char *block, size_t bytes) {
    (void)block;
    return map_anon(bytes);
}

static unsigned char *map_there(unsigned char *block, size_t bytes) {
    unsigned char *p = mmap(block, bytes, RW, ANON | MAP_FIXED_NOREPLACE, -1, 0);
    CHECK(p == block || errno == EEXIST);
    return p == block ? p : NULL;
}

static long give_nothing(unsigned char *block, size_t bytes) {
    (void)block, (void)bytes;
    return 0;
}

static unsigned char *map_over(unsigned char *block, size_t bytes) {
    unsigned char *p = mmap(block, bytes, RW, ANON | MAP_FIXED, -1, 0);
    return p == MAP_FAILED ? NULL : p;
}

static unsigned char *take_heap(size_t bytes) {
    unsigned char *end = sbrk(0);
    CHECK(brk((void *)(((uintptr_t)end + PAGE - 1) & ~(PAGE - 1))) == 0);
    unsigned char *p = sbrk((intptr_t)bytes);
    CHECK(p != (void *)-1);
    return p;
}

static long give_heap(unsigned char *block, size_t bytes) {
    CHECK(sbrk(0) == block + bytes);
    return brk(block) ? -errno : 0;
}

static unsigned char *heap_anew(unsigned char *block, size_t bytes) {
    return sbrk((intptr_t)bytes) == block ? block : NULL;
}

static unsigned char *take_arena(size_t bytes) {
    unsigned char *p = mmap(NULL, 64 * MIB, PROT_NONE, ANON | MAP_NORESERVE, -1, 0);
    CHECK(p != MAP_FAILED && mprotect(p, bytes, RW) == 0);
    return p;
}

static long give_arena(unsigned char *block, size_t bytes) {
    (void)bytes;
    return munmap(block, 64 * MIB) ? -errno : 0;
}

static unsigned char *arena_anew(unsigned char *block, size_t bytes) {
    (void)block;
    return take_arena(bytes);
}

static const struct place PLACES[] = {
    {"mapping-64K", 64 * KIB, take_mapping, give_mapping, map_anew},
    {"mapping-2M", 2 * MIB, take_mapping, give_mapping, map_anew},
    {"mapping-5M", 5 * MIB, take_mapping, give_mapping, map_anew},
    {"there-64K", 64 * KIB, take_mapping, give_mapping, map_there},
    {"there-5M", 5 * MIB, take_mapping, give_mapping, map_there},
    {"over-64K", 64 * KIB, take_mapping, give_nothing, map_over},
    {"over-5M", 5 * MIB, take_mapping, give_nothing, map_over},
    {"heap-64K", 64 * KIB, take_heap, give_heap, heap_anew},
    {"heap-5M", 5 * MIB, take_heap, give_heap, heap_anew},
    {"arena-256K", 256 * KIB, take_arena, give_arena, arena_anew},
};
enum { PLACE_COUNT = sizeof PLACES / sizeof *PLACES };

/* ---- states: each returns 0 or -errno, which is printed ---- */

ADVICE(random_order, MADV_RANDOM)
ADVICE(huge, MADV_HUGEPAGE)
ADVICE(not_huge, MADV_NOHUGEPAGE)
ADVICE(lazily_freed, MADV_FREE)
ADVICE(guarded, MADV_GUARD_INSTALL)

static long locked_on_fault(unsigned char *p, size_t bytes) { return syscall(SYS_mlock2, p, bytes, 1) ? -errno : 0; }
static long read_only(unsigned char *p, size_t bytes) { return mprotect(p, bytes, PROT_READ) ? -errno : 0; }
static long closed(unsigned char *p, size_t bytes) { return mprotect(p, bytes, PROT_NONE) ? -errno : 0; }

static long half(unsigned char *p, size_t bytes) {
    long first = advise(p, bytes / 2, MADV_DONTFORK);
    return first ? first : advise(p + bytes - PAGE, PAGE, MADV_WIPEONFORK);
}

static long bound(unsigned char *p, size_t bytes) {
    unsigned long node = 1;
    return syscall(SYS_mbind, p, bytes, MPOL_BIND, &node, 8, 0) ? -errno : 0;
}

static long registered(unsigned char *p, size_t bytes, uint64_t mode) {
    static int fd = -1;
    struct uffdio_api api = {.api = UFFD_API, .features = mode == UFFDIO_REGISTER_MODE_WP ? UFFD_FEATURE_PAGEFAULT_FLAG_WP : 0};
    if (fd >= 0) CHECK(close(fd) == 0);
    fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK);
    if (fd < 0 || ioctl(fd, UFFDIO_API, &api)) return -errno;
    struct uffdio_register range = {.range = {(uintptr_t)p, bytes}, .mode = mode};
    if (ioctl(fd, UFFDIO_REGISTER, &range)) return -errno;
    if (mode != UFFDIO_REGISTER_MODE_WP) return 0;
    struct uffdio_writeprotect protect = {.range = range.range, .mode = UFFDIO_WRITEPROTECT_MODE_WP};
    return ioctl(fd, UFFDIO_WRITEPROTECT, &protect) ? -errno : 0;
}

static long missing_told(unsigned char *p, size_t bytes) { return registered(p, bytes, UFFDIO_REGISTER_MODE_MISSING); }
static long writes_told(unsigned char *p, size_t bytes) { return registered(p, bytes, UFFDIO_REGISTER_MODE_WP); }

static long soft_dirty(unsigned char *p, size_t bytes) {
    (void)p, (void)bytes;
    int fd = open("/proc/self/clear_refs", O_WRONLY);
    long result = fd < 0 ? -errno : write(fd, "4", 1) == 1 ? 0 : -errno;
    if (fd >= 0) close(fd);
    return result;
}

static long mapped_over(unsigned char *p, size_t bytes, int flags, int prot) {
    return mmap(p, bytes, prot, flags | MAP_FIXED, -1, 0) == p ? 0 : -errno;
}

static long unreserved(unsigned char *p, size_t bytes) { return mapped_over(p, bytes, ANON | MAP_NORESERVE, RW); }
static long mapped_locked(unsigned char *p, size_t bytes) { return mapped_over(p, bytes, ANON | MAP_LOCKED, RW); }
static long shared(unsigned char *p, size_t bytes) { return mapped_over(p, bytes, MAP_SHARED | MAP_ANONYMOUS, RW); }
static long droppable(unsigned char *p, size_t bytes) { return mapped_over(p, bytes, MAP_DROPPABLE | MAP_ANONYMOUS, RW); }
static long sealed(unsigned char *p, size_t bytes) { return syscall(SYS_mseal, p, bytes, 0) ? -errno : 0; }

static const struct state {
    const char *name;
    long (*set)(unsigned char *block, size_t bytes);
} STATES[] = {
    {"nothing", nothing},
    {"DONTFORK", dont_fork},
    {"WIPEONFORK", wipe_on_fork},
    {"DONTFORK-in-part", half},
    {"DONTDUMP", dont_dump},
    {"MERGEABLE", mergeable},
    {"RANDOM", random_order},
    {"SEQUENTIAL", sequential},
    {"HUGEPAGE", huge},
    {"NOHUGEPAGE", not_huge},
    {"FREE", lazily_freed},
    {"GUARD_INSTALL", guarded},
    {"mlock", locked},
    {"mlock2-ONFAULT", locked_on_fault},
    {"MAP_LOCKED", mapped_locked},
    {"PROT_READ", read_only},
    {"PROT_NONE", closed},
    {"PROT_EXEC", executable},
    {"pkey", keyed},
    {"mbind-BIND", bound},
    {"mbind-INTERLEAVE", interleaved},
    {"userfaultfd-MISSING", missing_told},
    {"userfaultfd-WP", writes_told},
    {"name", named},
    {"soft-dirty", soft_dirty},
    {"MAP_NORESERVE", unreserved},
    {"MAP_SHARED", shared},
    {"MAP_DROPPABLE", droppable},
    {"mseal", sealed}, /* the last: such memory stays for good */
};

/* ---- what the new block has ---- */

/* Flags in smaps that a program can set on memory of its own. "um" and "uw": userfaultfd; "hg", "nh" are the policy's. */
static const char *const FLAGS[] = {"dc", "wf", "dd", "mg", "lo", "lf", "rr", "sr", "nr", "ac", "um", "uw", "sl", "sd", "sh", "ex", "dp", "gd", "io", "pf", "ht"};

enum { FLAG_COUNT = sizeof FLAGS / sizeof *FLAGS };

static void print_mappings(const unsigned char *block, size_t bytes) {
    struct mappings found = mappings_of(block, bytes, FLAGS, FLAG_COUNT);
    printf(" flags");
    for (int i = 0; i < FLAG_COUNT; i++)
        if (found.flagged[i]) printf(" %s", FLAGS[i]);
    printf("; key %llu; name %d", found.key, found.named != 0);
}

static long locked_kilobytes(void) {
    FILE *file = fopen("/proc/self/status", "r");
    char line[256];
    long locked = -1;
    while (file && fgets(line, sizeof line, file)) sscanf(line, "VmLck: %ld", &locked);
    if (file) fclose(file);
    return locked;
}

/* A child sees what its parent wrote, both at either end, and writes for itself. */
static int seen_by_child(unsigned char *block, size_t bytes) {
    pid_t pid = fork();
    if (pid == 0) {
        signal(SIGSEGV, SIG_DFL);
        if (block[0] != 0x5A || block[bytes / 2] != 0x5A || block[bytes - 1] != 0x5A) _exit(1);
        block[0] = block[bytes - 1] = 1;
        _exit(0);
    }
    int status = wait_for(pid);
    return block[0] == 0x5A && block[bytes - 1] == 0x5A ? status : 99;
}

static void print_new(unsigned char *block, size_t bytes) {
    printf("; zero %d", all_zero(block, bytes));
    memset(block, 0x5A, bytes);
    print_mappings(block, bytes);
    printf("; policy %d; child %d", policy_of(block), seen_by_child(block, bytes));
    printf("; discard %ld", advise(block, bytes, MADV_DONTNEED));
    printf("; zero %d", all_zero(block, bytes));
}

static void one(const struct state *state, const struct place *place) {
    long before = locked_kilobytes();
    unsigned char *block = place->take(place->bytes);
    memset(block, 0xA5, place->bytes);
    printf("%s %s: %ld", state->name, place->name, state->set(block, place->bytes));
    long given = place->give(block, place->bytes);
    printf(", given back %ld", given);
    if (given == 0) {
        unsigned char *again = place->again(block, place->bytes);
        printf("%s", again ? "" : "; no new block");
        if (again) {
            print_new(again, place->bytes);
            printf("; locked %ld", locked_kilobytes() - before);
            printf("; gone %ld", place->give == give_nothing ? give_mapping(again, place->bytes) : place->give(again, place->bytes));
        }
    }
    printf("\n");
    fflush(stdout);
}

int main(int argc, char **argv) {
    static char buffer[1 << 16]; /* and so stdio leaves the heap alone */
    CHECK(setvbuf(stdout, buffer, _IOFBF, sizeof buffer) == 0);
    locked_kilobytes(); /* what stdio keeps of the heap it has now */
    for (size_t state = 0; state < sizeof STATES / sizeof *STATES; state++) {
        if (argc > 1 && strcmp(argv[1], STATES[state].name) != 0) continue;
        for (size_t place = 0; place < PLACE_COUNT; place++) {
            alarm(20); /* who waits for an answer to a page fault waits for ever */
            one(&STATES[state], &PLACES[place]);
        }
    }
    return 0;
}

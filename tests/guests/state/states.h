/* States that the kernel keeps with a mapping, as functions that set them (0 or -errno), and what smaps has of a mapping. */
#ifndef STATES_H
#define STATES_H

#include "../guest.h"

#include <linux/mempolicy.h>
#include <linux/prctl.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#ifndef PR_SET_VMA
#define PR_SET_VMA 0x53564d41
#define PR_SET_VMA_ANON_NAME 0
#endif

#define BLOCK_NAME "of the block"

static long advise(unsigned char *p, size_t bytes, int advice) { return madvise(p, bytes, advice) ? -errno : 0; }

#define ADVICE(function, advice)                                                                           \
    static long function(unsigned char *p, size_t bytes) { return advise(p, bytes, advice); }
ADVICE(dont_fork, MADV_DONTFORK)
ADVICE(wipe_on_fork, MADV_WIPEONFORK)
ADVICE(dont_dump, MADV_DONTDUMP)
ADVICE(mergeable, MADV_MERGEABLE)
ADVICE(sequential, MADV_SEQUENTIAL)

static long nothing(unsigned char *p, size_t bytes) { return p && bytes ? 0 : -1; }
static long locked(unsigned char *p, size_t bytes) { return mlock(p, bytes) ? -errno : 0; }
static long executable(unsigned char *p, size_t bytes) { return mprotect(p, bytes, RW | PROT_EXEC) ? -errno : 0; }

static long keyed(unsigned char *p, size_t bytes) {
    static int key = -1;
    if (key < 0) key = pkey_alloc(0, 0);
    if (key < 0) return -errno;
    return pkey_mprotect(p, bytes, RW, key) ? -errno : 0;
}

static long interleaved(unsigned char *p, size_t bytes) {
    unsigned long node = 1;
    return syscall(SYS_mbind, p, bytes, MPOL_INTERLEAVE, &node, 8, 0) ? -errno : 0;
}

static long named(unsigned char *p, size_t bytes) {
    return prctl(PR_SET_VMA, PR_SET_VMA_ANON_NAME, p, bytes, BLOCK_NAME) ? -errno : 0;
}

static int policy_of(const unsigned char *block) {
    int mode = -1;
    return syscall(SYS_get_mempolicy, &mode, NULL, 0, block, MPOL_F_ADDR) ? -errno : mode;
}

static char smaps[8 << 20]; /* the pool of frames is thousands of mappings */

static void read_smaps(void) {
    int fd = open("/proc/self/smaps", O_RDONLY);
    size_t length = 0;
    CHECK(fd >= 0);
    for (ssize_t got; (got = read(fd, smaps + length, sizeof smaps - 1 - length)) > 0;) length += (size_t)got;
    CHECK(close(fd) == 0 && length < sizeof smaps - 1);
    smaps[length] = 0;
}

struct mappings {
    int count, named, keyed; /* those that lie in the block; with its name; with a key */
    unsigned long long key;
    int flagged[32]; /* with each of the flags asked for */
};

/* Of [block, block + bytes); `flags` are as smaps has them. */
static struct mappings mappings_of(const unsigned char *block, size_t bytes, const char *const *flags, int flag_count) {
    struct mappings found = {0};
    int inside = 0;
    read_smaps();
    for (char *line = strtok(smaps, "\n"); line; line = strtok(NULL, "\n")) {
        unsigned long long from, to;
        if (sscanf(line, "%llx-%llx ", &from, &to) == 2 && strchr(line, '-') < strchr(line, ' ')) {
            inside = from < (uintptr_t)block + bytes && to > (uintptr_t)block;
            found.count += inside;
            found.named += inside && strstr(line, BLOCK_NAME) != NULL;
        }
        if (!inside) continue;
        if (strncmp(line, "ProtectionKey:", 14) == 0) {
            unsigned long long key = strtoull(line + 14, NULL, 10);
            found.key |= key;
            found.keyed += key != 0;
        }
        if (strncmp(line, "VmFlags:", 8) != 0) continue;
        for (int i = 0; i < flag_count; i++) {
            char word[8];
            snprintf(word, sizeof word, " %s ", flags[i]);
            found.flagged[i] += strstr(line, word) != NULL;
        }
    }
    return found;
}

#endif

/* Landlock's system calls, by number: libc has no functions for them. */
#ifndef LANDLOCK_H
#define LANDLOCK_H
#include "guest.h"
#include <sys/prctl.h>

enum { CREATE_RULESET = 444, ADD_RULE = 445, RESTRICT_SELF = 446 };
enum { EXECUTE = 1, READ_FILE = 4, READ_DIR = 8 };

struct __attribute__((packed)) beneath {
    uint64_t allowed;
    int32_t directory;
};

/* The calling thread may execute and read only what lies in these directories, a list that ends with NULL. Returns whether
 * the kernel has Landlock. */
__attribute__((unused)) static int restrict_files_to(const char *const *directories) {
    const uint64_t handled = EXECUTE | READ_FILE | READ_DIR;
    int ruleset = (int)syscall(CREATE_RULESET, &handled, sizeof handled, 0);
    if (ruleset < 0) return 0;
    for (; *directories; directories++) {
        struct beneath rule = {handled, open(*directories, O_PATH | O_CLOEXEC)};
        if (rule.directory < 0) continue; /* this system has no such directory */
        CHECK(syscall(ADD_RULE, ruleset, 1, &rule, 0) == 0);
        close(rule.directory);
    }
    CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
    CHECK(syscall(RESTRICT_SELF, ruleset, 0) == 0);
    close(ruleset);
    return 1;
}

#endif

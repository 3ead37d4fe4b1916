/* A program that moves the kernel's functions (vDSO), and then unmaps them, as checkpoint and restore do. Regression: the
 * library still read the clock by them. */
#include "guest.h"
#include <sys/auxv.h>

static void use_memory(void) {
    churn(1, 300, 300 * KIB);
    unsigned char *p = map_anon(9 * MIB);
    fill(p, 9 * MIB, 2);
    CHECK(madvise(p + MIB, MIB, MADV_DONTNEED) == 0 && holds(p, MIB, 2));
    CHECK(munmap(p, 9 * MIB) == 0);
}

int main(void) {
    char *vdso = (char *)getauxval(AT_SYSINFO_EHDR);
    if (vdso == NULL) return ok();
    char *room = mmap(NULL, 2 * PAGE, PROT_NONE, ANON, -1, 0);
    CHECK(room != MAP_FAILED);
    CHECK(mremap(vdso, 2 * PAGE, 2 * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, room) == room);
    use_memory();
    CHECK(munmap(room, 2 * PAGE) == 0);
    use_memory();
    pid_t child = fork();
    if (child == 0) {
        use_memory();
        _exit(5);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 5);
    return ok();
}

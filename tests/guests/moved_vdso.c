/* A program that moves the kernel's functions (vDSO), and then unmaps them, as checkpoint and restore do. Regression: the
 * library still read the clock by them. */
#include "guest.h"
#include <sys/auxv.h>

int main(void) {
    char *vdso = (char *)getauxval(AT_SYSINFO_EHDR);
    if (vdso == NULL) return ok();
    char *room = mmap(NULL, 2 * PAGE, PROT_NONE, ANON, -1, 0);
    CHECK(room != MAP_FAILED);
    CHECK(mremap(vdso, 2 * PAGE, 2 * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, room) == room);
    work_on_memory();
    CHECK(munmap(room, 2 * PAGE) == 0);
    work_on_memory();
    work_on_memory_in_child();
    return ok();
}

/* A program that may open only the system's files from now on (Landlock, Linux 5.13) executes one of them: nobody writes
 * to standard error. Natively, and on kernels without Landlock, it is an exec like any other.
 * Regression: the library and the plan, which the next image could not open, stayed in its environment. */
#include "guest.h"
#include "landlock.h"

int main(void) {
    static const char *const allowed[] = {"/usr", "/lib", "/lib64", "/bin", "/etc", "/proc", NULL};
    restrict_files_to(allowed);
    execl("/bin/echo", "echo", "ok", (char *)NULL);
    FAIL("exec");
}

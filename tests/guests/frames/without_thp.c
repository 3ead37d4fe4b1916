/* Not a guest: executes its arguments with transparent huge pages switched off for the process and all that come of it. */
#include "frames.h"
#include <sys/prctl.h>

int main(int argc, char **argv) {
    CHECK(argc > 1 && prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0) == 0);
    execvp(argv[1], argv + 1);
    return 127;
}

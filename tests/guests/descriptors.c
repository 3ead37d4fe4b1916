/* The library leaves no descriptor behind: only 0, 1 and 2 are open, and closing everything harms nothing. (Where it places
 * frames, one is: a userfaultfd, far up, and close-on-exec.)
 * Argument: "closed" when the test started it with 0, 1 and 2 closed, and reports by the exit status. */
#include "guest.h"
#include <dirent.h>
#include <sys/resource.h>

static int is_open(int fd) { return fcntl(fd, F_GETFD) != -1; }

int main(int argc, char **argv) {
    int closed = argc > 1 && strcmp(argv[1], "closed") == 0;
    for (int fd = 0; fd < 3; fd++) CHECK(is_open(fd) == !closed);
    for (int fd = 3; fd < 1024; fd++)
        if (is_open(fd)) {
            char name[64], target[200] = "";
            snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
            if (readlink(name, target, sizeof target - 1) < 0) target[0] = 0;
            int places_frames = getenv("GUEST_POOL_BYTES") != NULL && fcntl(fd, F_GETFD) == FD_CLOEXEC;
            if (places_frames && fd >= 900 && strcmp(target, "anon_inode:[userfaultfd]") == 0) continue;
            FAIL("descriptor %d is open at main: %s", fd, target);
        }
    int first = open("/dev/null", O_RDONLY);
    CHECK(first == (closed ? 0 : 3));
    CHECK(close_range(3, ~0u, 0) == 0);
    churn(1, 400, 300 * KIB);
    unsigned char *p = map_anon(5 * MIB);
    fill(p, 5 * MIB, 1);
    /* Every descriptor taken: memory must still be had. */
    struct rlimit few = {32, 32};
    CHECK(setrlimit(RLIMIT_NOFILE, &few) == 0);
    while (open("/dev/null", O_RDONLY) >= 0) {}
    CHECK(errno == EMFILE);
    pthread_t thread = pthread_self();
    churn(2, 400, 300 * KIB);
    p = mremap(p, 5 * MIB, 9 * MIB, MREMAP_MAYMOVE);
    CHECK(p != MAP_FAILED && holds(p, 5 * MIB, 1) && all_zero(p + 5 * MIB, 4 * MIB));
    pid_t pid = fork();
    if (pid == 0) {
        churn(3, 200, 300 * KIB);
        exit(0);
    }
    CHECK(wait_for(pid) == 0 && thread == pthread_self());
    return closed ? 0 : ok();
}

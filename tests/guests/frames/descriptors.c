/* Whatever the program does to its descriptor table, its memory still comes, and comes placed.
 * Argument: which. */
#include "frames.h"
#include <linux/userfaultfd.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/resource.h>

enum { HIGHEST = 1100 };

static unsigned char *before;

/* Memory mapped before, and memory mapped now, in this thread, in another, and in a child. */
static void *touch(void *unused) {
    unsigned char *p = map_anon(600 * PAGE);
    write_tags(p, 600, 1);
    check_tags(p, 600, 1);
    CHECK_PLACED(p, 600);
    p = mremap(p, 600 * PAGE, 900 * PAGE, MREMAP_MAYMOVE);
    CHECK(p != MAP_FAILED);
    check_tags(p, 600, 1);
    write_tags(p, 900, 1);
    CHECK_MOVED(p, 900);
    CHECK(madvise(p, 900 * PAGE, MADV_DONTNEED) == 0 && all_zero(p, 900 * PAGE));
    CHECK(munmap(p, 900 * PAGE) == 0);
    return unused;
}

static void go_on(void) {
    static size_t used;
    CHECK(used < 6);
    unsigned char *p = before + used++ * 300 * PAGE;
    write_tags(p, 300, 4);
    check_tags(p, 300, 4);
    CHECK_PLACED(p, 300);
    touch(NULL);
    churn(used, 200, 200 * KIB);
    CHECK(pthread_join(start(touch, NULL), NULL) == 0);
    pid_t pid = fork();
    if (pid == 0) {
        touch(NULL);
        exit(0);
    }
    CHECK(wait_for(pid) == 0);
}

static void closed(void) {
    CHECK(close_range(3, ~0u, 0) == 0);
    go_on();
    for (int fd = 3; fd < 70000; fd++) close(fd);
    go_on();
}

/* Something of the program's stands where a library might have kept its own. */
static void taken(void) {
    struct rlimit limit;
    CHECK(getrlimit(RLIMIT_NOFILE, &limit) == 0);
    int ends[2], most = limit.rlim_cur < 70000 ? (int)limit.rlim_cur : 70000;
    CHECK(pipe(ends) == 0);
    CHECK(write(ends[1], "precious", 8) == 8);
    int spare = ends[1] + 1; /* for the guest's own look at pagemap */
    for (int fd = most - 1; fd > spare; fd--) CHECK(dup2(ends[0], fd) == fd);
    go_on();
    for (int fd = most - 1; fd > spare; fd--) { /* still ours, and nobody read what we had in there */
        CHECK(fcntl(fd, F_GETFL) != -1);
        if (fd % 3) CHECK(close(fd) == 0);
    }
    go_on();
    char got[9] = "";
    CHECK(read(ends[0], got, 9) == 8 && strcmp(got, "precious") == 0);
    /* Only our own ends are left: the reader must see the end of the pipe, not a copy in some other table. */
    CHECK(close(ends[1]) == 0);
    CHECK(read(ends[0], got, 1) == 0);
}

/* The program's own userfaultfd stands there: it gets none of the memory that the program has not registered with it.
 * Regression: the library registered memory with it, and the next touch waited for ever. */
static void replaced(void) {
    int own = (int)syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK);
    if (own < 0) return; /* not for this user */
    struct uffdio_api api = {.api = UFFD_API};
    CHECK(ioctl(own, UFFDIO_API, &api) == 0);
    for (int fd = own + 1; fd <= HIGHEST; fd++) CHECK(fcntl(fd, F_GETFD) == -1 || dup2(own, fd) == fd);
    alarm(20); /* rather than for ever */
    go_on();
    struct pollfd message = {own, POLLIN, 0};
    CHECK(poll(&message, 1, 0) == 0);
}

/* `filler` is a descriptor that closes itself when the guest ends; one is freed again, for pagemap. */
static void few(void) {
    struct rlimit few = {24, 24};
    CHECK(setrlimit(RLIMIT_NOFILE, &few) == 0);
    go_on();
    int last = -1, fd;
    while ((fd = open("/dev/null", O_RDONLY)) >= 0) last = fd;
    CHECK(errno == EMFILE && last >= 0);
    unsigned char *p = map_anon(300 * PAGE); /* not one descriptor left */
    write_tags(p, 300, 5);
    check_tags(p, 300, 5);
    p = mremap(p, 300 * PAGE, 500 * PAGE, MREMAP_MAYMOVE);
    CHECK(p != MAP_FAILED);
    write_tags(p, 500, 5);
    churn(9, 100, 200 * KIB);
    CHECK(close(last) == 0);
    CHECK_MOVED(p, 500);
    go_on();
}

static void pipe_ends(void) {
    int ends[2];
    touch(NULL); /* whatever the library starts, it has started before the pipe is there … */
    CHECK(pipe(ends) == 0);
    go_on(); /* … and after */
    pid_t pid = fork();
    if (pid == 0) {
        close(ends[0]);
        touch(NULL);
        CHECK(write(ends[1], "x", 1) == 1);
        exit(0);
    }
    close(ends[1]);
    char got;
    CHECK(read(ends[0], &got, 1) == 1 && read(ends[0], &got, 1) == 0); /* end of file: nobody else holds it */
    CHECK(wait_for(pid) == 0);
}

int main(int argc, char **argv) {
    CHECK(argc == 2);
    before = map_anon(6 * 300 * PAGE);
    before[0] = 0;
    if (strcmp(argv[1], "closed") == 0)
        closed();
    else if (strcmp(argv[1], "taken") == 0)
        taken();
    else if (strcmp(argv[1], "replaced") == 0)
        replaced();
    else if (strcmp(argv[1], "few") == 0)
        few();
    else if (strcmp(argv[1], "pipe") == 0)
        pipe_ends();
    else
        FAIL("unknown: %s", argv[1]);
    return ok();
}

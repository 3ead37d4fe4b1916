/* Four threads map a file with MAP_POPULATE whose file system does not answer for a while; other threads still get memory.
 * Regression: the calls waited on the library's own stacks, of which there are four, so that every memory call waited with them.
 * Needs root and /dev/fuse; elsewhere there is nothing to learn. */
#include "guest.h"
#include <linux/fuse.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <time.h>

enum { THREADS = 4, SECONDS = 2, STEP = 64 * PAGE };
static int device, file;

static void answer(const struct fuse_in_header *asked, int error, const void *data, size_t bytes) {
    static char reply[STEP + 4096];
    struct fuse_out_header header = {(unsigned)(sizeof header + bytes), error, asked->unique};
    memcpy(reply, &header, sizeof header);
    memcpy(reply + sizeof header, data, bytes);
    if (write(device, reply, header.len) < 0 && errno != ENOENT) _exit(9);
}

/* One file of zeros; reads take their time, other requests do not (docs/preload.md: what flushes files). */
static void serve(void) {
    static char request[1 << 20], zeros[STEP];
    CHECK(signal(SIGCHLD, SIG_IGN) != SIG_ERR);
    for (;;) {
        const struct fuse_in_header *asked = (const void *)request;
        if (read(device, request, sizeof request) <= 0) {
            if (errno == EINTR || errno == ENOENT) continue;
            _exit(0);
        }
        switch (asked->opcode) {
        case FUSE_INIT: {
            struct fuse_init_out out = {.major = 7, .minor = 31, .max_write = 1 << 17};
            answer(asked, 0, &out, sizeof out);
            break;
        }
        case FUSE_GETATTR: {
            struct fuse_attr_out out = {.attr_valid = 1000};
            out.attr.ino = 1, out.attr.size = THREADS * STEP, out.attr.mode = S_IFREG | 0644, out.attr.nlink = 1;
            answer(asked, 0, &out, sizeof out);
            break;
        }
        case FUSE_OPEN: {
            struct fuse_open_out out = {.fh = 1};
            answer(asked, 0, &out, sizeof out);
            break;
        }
        case FUSE_READ: {
            const struct fuse_read_in *in = (const void *)(asked + 1);
            if (fork() != 0) break;
            sleep(SECONDS);
            answer(asked, 0, zeros, in->size < sizeof zeros ? in->size : sizeof zeros);
            _exit(0);
        }
        case FUSE_FORGET: break;
        default: answer(asked, -ENOSYS, NULL, 0);
        }
    }
}

static void *map_some(void *number) {
    const char *p = mmap(NULL, PAGE, PROT_READ, MAP_SHARED | MAP_POPULATE, file, (off_t)((size_t)number * STEP));
    CHECK(p != MAP_FAILED && *p == 0);
    return NULL;
}

static double now_s(void) {
    struct timespec now;
    CHECK(clock_gettime(CLOCK_MONOTONIC, &now) == 0);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

int main(void) {
    char name[] = "/tmp/slow-file-XXXXXX", options[99];
    int target = mkstemp(name);
    device = open("/dev/fuse", O_RDWR);
    snprintf(options, sizeof options, "fd=%d,rootmode=100644,user_id=0,group_id=0", device);
    /* The mount is this process's alone, and goes with it. */
    int is_possible = target >= 0 && device >= 0 && unshare(CLONE_NEWNS) == 0 &&
                      mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0 && mount("slow", name, "fuse", 0, options) == 0;
    if (!is_possible) return unlink(name), ok();
    pid_t server = fork();
    if (server == 0) serve();
    CHECK(server > 0 && close(device) == 0);
    file = open(name, O_RDONLY);
    struct stat size;
    CHECK(file >= 0 && fstat(file, &size) == 0 && size.st_size == THREADS * STEP);
    pthread_t thread[THREADS];
    for (size_t i = 0; i < THREADS; i++) CHECK(pthread_create(&thread[i], NULL, map_some, (void *)i) == 0);
    usleep(300000); /* all of them wait */
    double begun = now_s();
    unsigned char *p = map_anon(MIB);
    p[0] = 1;
    CHECK(munmap(p, MIB) == 0);
    double took = now_s() - begun;
    for (size_t i = 0; i < THREADS; i++) CHECK(pthread_join(thread[i], NULL) == 0);
    CHECK(close(file) == 0 && umount2(name, MNT_DETACH) == 0 && unlink(name) == 0 && kill(server, SIGKILL) == 0);
    CHECK(waitpid(server, NULL, 0) == server);
    if (took > 1.0) FAIL("a block of memory took %.1f s", took);
    return ok();
}

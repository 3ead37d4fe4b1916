/* Direct input and output that is under way while its buffer is given back, or moved: a write carries the old bytes, a
 * read touches no new memory, and is found in the old where the program still has it. What is written to and read from
 * is a file whose file system is a child of ours, which answers when it is told to: so the flight takes as long as it
 * must. Arguments: a directory, and write, read or remap. Needs the right to mount (in a mount namespace of its own). */
#include "references.h"
#include <linux/fuse.h>
#include <poll.h>
#include <sched.h>
#include <sys/mount.h>

enum { MOST = 128 * KIB };

/* What the two say to each other, one byte each: 'h' hold the next request; 'u' it is under way; 'g' go on. */
static int to_server[2], from_server[2], jobs[2], finished[2], device, file;
static unsigned char content[MOST], message[MOST + 4096], *aligned;

static void say(const int pipe_ends[2], char word) { CHECK(write(pipe_ends[1], &word, 1) == 1); }

static char hear(const int pipe_ends[2]) {
    char word;
    CHECK(read(pipe_ends[0], &word, 1) == 1);
    return word;
}

static void answer(const struct fuse_in_header *in, int error, const void *body, size_t bytes) {
    struct fuse_out_header head = {.len = (uint32_t)(sizeof head + bytes), .error = error, .unique = in->unique};
    struct iovec parts[] = {{&head, sizeof head}, {(void *)body, bytes}};
    CHECK(writev(device, parts, 2) == (ssize_t)head.len || errno == ENOENT);
}

static void serve_one(void) {
    ssize_t got = read(device, message, sizeof message);
    if (got < 0 && errno == ENODEV) _exit(0); /* unmounted: the namespace is gone */
    CHECK(got >= (ssize_t)sizeof(struct fuse_in_header));
    struct fuse_in_header in;
    memcpy(&in, message, sizeof in);
    const unsigned char *body = message + sizeof in;
    switch (in.opcode) {
    case FUSE_INIT: {
        struct fuse_init_out out = {.major = 7, .minor = 31, .max_readahead = 0, .max_write = MOST, .flags = FUSE_BIG_WRITES};
        answer(&in, 0, &out, sizeof out);
        return;
    }
    case FUSE_GETATTR: {
        struct fuse_attr_out out = {.attr_valid = 3600, .attr = {.ino = 1, .size = MOST, .mode = S_IFREG | 0600, .nlink = 1}};
        answer(&in, 0, &out, sizeof out);
        return;
    }
    case FUSE_OPEN: {
        struct fuse_open_out out = {.open_flags = FOPEN_DIRECT_IO};
        answer(&in, 0, &out, sizeof out);
        return;
    }
    case FUSE_WRITE: {
        struct fuse_write_in request;
        memcpy(&request, body, sizeof request);
        CHECK(request.offset + request.size <= MOST);
        memcpy(content + request.offset, body + sizeof request, request.size);
        struct fuse_write_out out = {.size = request.size};
        answer(&in, 0, &out, sizeof out);
        return;
    }
    case FUSE_READ: {
        struct fuse_read_in request;
        memcpy(&request, body, sizeof request);
        CHECK(request.offset + request.size <= MOST);
        answer(&in, 0, content + request.offset, request.size);
        return;
    }
    case FUSE_FORGET:
    case FUSE_INTERRUPT:
        return;
    case FUSE_RELEASE:
        answer(&in, 0, NULL, 0);
        return;
    default:
        answer(&in, -ENOSYS, NULL, 0);
    }
}

/* Serves until its parent is gone. A request that is held is not even read: its pages stay with the kernel. */
static void serve(void) {
    struct pollfd wanted[] = {{to_server[0], POLLIN, 0}, {device, POLLIN, 0}};
    CHECK(close(to_server[1]) == 0 && close(from_server[0]) == 0);
    for (;;) {
        CHECK(poll(wanted, 2, -1) > 0);
        if (wanted[0].revents) {
            char word;
            if (read(to_server[0], &word, 1) != 1) _exit(0);
            CHECK(word == 'h');
            say(from_server, 'r');
            CHECK(poll(&wanted[1], 1, -1) == 1);
            say(from_server, 'u');
            CHECK(hear(to_server) == 'g');
        }
        if (poll(&wanted[1], 1, 0) == 1) serve_one();
    }
}

struct job {
    const struct parts *parts;
    int writes;
};

/* The thread that waits for the file, made before the heap is measured out. */
static void *worker(void *nothing) {
    struct job job;
    while (read(jobs[0], &job, sizeof job) == sizeof job) {
        const struct parts *parts = job.parts;
        ssize_t done = job.writes ? pwritev(file, parts->part, (int)parts->count, 0)
                                  : preadv(file, parts->part, (int)parts->count, 0);
        if (done != (ssize_t)bytes_of(parts)) FAIL("%s, %zu KiB: direct: %zd", way_now, bytes_now / KIB, done);
        say(finished, 'd');
    }
    return nothing;
}

static void begin(const struct parts *parts, int writes) {
    struct job job = {parts, writes};
    say(to_server, 'h');
    CHECK(hear(from_server) == 'r');
    CHECK(write(jobs[1], &job, sizeof job) == sizeof job);
    CHECK(hear(from_server) == 'u');
}

static void complete(void) {
    say(to_server, 'g');
    CHECK(hear(finished) == 'd');
}

static void begin_write(const struct parts *parts, unsigned seed) {
    (void)seed;
    begin(parts, 1);
}

static void end_write(const struct parts *parts, unsigned seed) {
    complete();
    CHECK(pread(file, aligned, MOST, 0) == MOST);
    check_parts(parts, aligned, seed, "direct write");
}

static void write_file(const struct parts *parts, unsigned seed) {
    size_t at = 0;
    for (size_t i = 0; i < parts->count; at += parts->part[i++].iov_len)
        fill(aligned + at, parts->part[i].iov_len, seed + (unsigned)i);
    CHECK(pwrite(file, aligned, at, 0) == (ssize_t)at);
}

static void begin_read(const struct parts *parts, unsigned seed) {
    write_file(parts, seed);
    begin(parts, 0);
}

static void end_read(const struct parts *parts, unsigned seed) {
    (void)parts, (void)seed;
    complete();
}

static void mount_file(const char *directory) {
    char path[4096], options[128];
    snprintf(path, sizeof path, "%s/held", directory);
    CHECK(close(open(path, O_CREAT | O_WRONLY, 0600)) == 0);
    device = open("/dev/fuse", O_RDWR | O_CLOEXEC);
    if (device < 0) FAIL("/dev/fuse");
    CHECK(unshare(CLONE_NEWNS) == 0 && mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0);
    snprintf(options, sizeof options, "fd=%d,rootmode=100000,user_id=0,group_id=0", device);
    if (mount("held", path, "fuse", MS_NOSUID | MS_NODEV, options)) FAIL("mount of %s", path);
    CHECK(pipe(to_server) == 0 && pipe(from_server) == 0 && pipe(jobs) == 0 && pipe(finished) == 0);
    pid_t server = fork();
    CHECK(server >= 0);
    if (server == 0) serve();
    CHECK(close(device) == 0); /* with the server the mount goes, and whoever waits for it wakes */
    CHECK(close(to_server[0]) == 0 && close(from_server[1]) == 0);
    file = open(path, O_RDWR | O_DIRECT);
    if (file < 0) FAIL("open of %s", path);
}

int main(int argc, char **argv) {
    static const struct channel writing = {begin_write, end_write}, reading = {begin_read, end_read};
    CHECK(argc == 3);
    mount_file(argv[1]);
    aligned = mmap(NULL, MOST, RW, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(aligned != MAP_FAILED);
    /* What the kernel asks only once, as at a close, it has asked then. */
    CHECK(pwrite(file, aligned, PAGE, 0) == PAGE && pread(file, aligned, PAGE, 0) == PAGE);
    (void)close(dup(file));
    start(worker, NULL);
    if (strcmp(argv[2], "write") == 0) every_way(&writing, 1);
    if (strcmp(argv[2], "read") == 0) every_way(&reading, 1);
    if (strcmp(argv[2], "remap") == 0) every_change(&reading);
    return ok();
}

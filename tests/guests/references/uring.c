/* Registered buffers of io_uring: the ring has their pages until they are unregistered, whatever the program does with
 * the memory. A write that is under way carries the old bytes; a read that is under way touches no new memory, and is
 * found in the old where the program still has it. */
#include "references.h"
#include <linux/io_uring.h>

struct ring {
    int fd;
    unsigned *sq_tail, *sq_mask, *sq_array, *cq_head, *cq_tail, *cq_mask;
    struct io_uring_sqe *entries;
    struct io_uring_cqe *results;
};

static struct ring ring;
static int in[2], out[2];
static unsigned char junk[64 * KIB], got[MOST_PARTS * PART];

static int set_up(void) {
    struct io_uring_params params = {0};
    ring.fd = (int)syscall(SYS_io_uring_setup, 8, &params);
    if (ring.fd < 0) return 0; /* switched off on this machine, or by a sandbox */
    size_t sq = params.sq_off.array + params.sq_entries * 4;
    size_t cq = params.cq_off.cqes + params.cq_entries * sizeof(struct io_uring_cqe);
    unsigned char *s = mmap(NULL, sq, RW, MAP_SHARED | MAP_POPULATE, ring.fd, IORING_OFF_SQ_RING);
    unsigned char *c = mmap(NULL, cq, RW, MAP_SHARED | MAP_POPULATE, ring.fd, IORING_OFF_CQ_RING);
    ring.entries =
        mmap(NULL, params.sq_entries * sizeof *ring.entries, RW, MAP_SHARED | MAP_POPULATE, ring.fd, IORING_OFF_SQES);
    CHECK(s != MAP_FAILED && c != MAP_FAILED && ring.entries != MAP_FAILED);
    ring.sq_tail = (unsigned *)(s + params.sq_off.tail);
    ring.sq_mask = (unsigned *)(s + params.sq_off.ring_mask);
    ring.sq_array = (unsigned *)(s + params.sq_off.array);
    ring.cq_head = (unsigned *)(c + params.cq_off.head);
    ring.cq_tail = (unsigned *)(c + params.cq_off.tail);
    ring.cq_mask = (unsigned *)(c + params.cq_off.ring_mask);
    ring.results = (struct io_uring_cqe *)(c + params.cq_off.cqes);
    return 1;
}

static void submit(unsigned char opcode, int fd, const struct iovec *part, size_t from, unsigned short buffer) {
    unsigned tail = *ring.sq_tail, at = tail & *ring.sq_mask;
    ring.entries[at] = (struct io_uring_sqe){
        .opcode = opcode,
        .fd = fd,
        .addr = (uintptr_t)part->iov_base + from,
        .len = (unsigned)(part->iov_len - from),
        .off = (uint64_t)-1,
        .buf_index = buffer,
    };
    ring.sq_array[at] = at;
    __atomic_store_n(ring.sq_tail, tail + 1, __ATOMIC_RELEASE);
    CHECK(syscall(SYS_io_uring_enter, ring.fd, 1, 0, 0, NULL, 0) == 1);
}

static size_t completed(void) {
    unsigned head = *ring.cq_head;
    while (__atomic_load_n(ring.cq_tail, __ATOMIC_ACQUIRE) == head)
        CHECK(syscall(SYS_io_uring_enter, ring.fd, 0, 1, IORING_ENTER_GETEVENTS, NULL, 0) >= 0 || errno == EINTR);
    int result = ring.results[head & *ring.cq_mask].res;
    __atomic_store_n(ring.cq_head, head + 1, __ATOMIC_RELEASE);
    errno = result < 0 ? -result : 0;
    if (result <= 0) FAIL("%s, %zu KiB: io_uring: %d", way_now, bytes_now / KIB, result);
    return (size_t)result;
}

static int is_under_way(void) { return __atomic_load_n(ring.cq_tail, __ATOMIC_ACQUIRE) == *ring.cq_head; }

static void take_on(const struct parts *parts) {
    if (syscall(SYS_io_uring_register, ring.fd, IORING_REGISTER_BUFFERS, parts->part, parts->count))
        FAIL("IORING_REGISTER_BUFFERS");
}

static void let_go(void) { CHECK(syscall(SYS_io_uring_register, ring.fd, IORING_UNREGISTER_BUFFERS, NULL, 0) == 0); }

static void write_all(int fd, const unsigned char *from, size_t bytes) {
    for (size_t done = 0; done < bytes;) {
        ssize_t put = write(fd, from + done, bytes - done);
        CHECK(put > 0);
        done += (size_t)put;
    }
}

/* What the ring has in its pages, by way of a pipe; a write of part 0 may be under way. */
static void check_ring(const struct parts *parts, unsigned seed, int under_way, const char *what) {
    unsigned char *to = got;
    for (unsigned short i = 0; i < parts->count; i++)
        for (size_t done = 0; done < parts->part[i].iov_len;) {
            if (!under_way) submit(IORING_OP_WRITE_FIXED, out[1], &parts->part[i], done, i);
            under_way = 0;
            size_t step = completed();
            read_all(out[0], to, step);
            to += step;
            done += step;
        }
    check_parts(parts, got, seed, what);
}

static size_t in_the_way;

static void begin_write(const struct parts *parts, unsigned seed) {
    (void)seed;
    take_on(parts);
    CHECK(fcntl(out[1], F_SETFL, O_NONBLOCK) == 0);
    for (ssize_t put; (put = write(out[1], junk, sizeof junk)) > 0;) in_the_way += (size_t)put;
    CHECK(errno == EAGAIN && in_the_way > 0 && fcntl(out[1], F_SETFL, 0) == 0);
    submit(IORING_OP_WRITE_FIXED, out[1], &parts->part[0], 0, 0);
    CHECK(is_under_way());
}

static void end_write(const struct parts *parts, unsigned seed) {
    for (; in_the_way; in_the_way -= in_the_way < sizeof junk ? in_the_way : sizeof junk)
        read_all(out[0], junk, in_the_way < sizeof junk ? in_the_way : sizeof junk);
    check_ring(parts, seed, 1, "write of a registered buffer");
    let_go();
}

static void begin_read(const struct parts *parts, unsigned seed) {
    (void)seed;
    take_on(parts);
    submit(IORING_OP_READ_FIXED, in[0], &parts->part[0], 0, 0);
    CHECK(is_under_way());
}

/* Bytes of the seed come through the pipe into the first part's pages, and then into the others'. */
static void deliver(const struct parts *parts, unsigned seed) {
    for (unsigned short i = 0; i < parts->count; i++) {
        size_t bytes = parts->part[i].iov_len;
        fill(junk, bytes, seed + i);
        write_all(in[1], junk, bytes);
        if (i > 0) submit(IORING_OP_READ_FIXED, in[0], &parts->part[i], 0, i);
        for (size_t done = completed(); done < bytes; done += completed())
            submit(IORING_OP_READ_FIXED, in[0], &parts->part[i], done, i);
    }
}

static void end_read(const struct parts *parts, unsigned seed) {
    deliver(parts, seed + 5);
    check_ring(parts, seed + 5, 0, "read into a registered buffer");
    let_go();
}

static void end_read_in_place(const struct parts *parts, unsigned seed) {
    deliver(parts, seed);
    let_go();
}

int main(int argc, char **argv) {
    static const struct channel writing = {begin_write, end_write}, reading = {begin_read, end_read},
                                arriving = {begin_read, end_read_in_place};
    const char *what = argc > 1 ? argv[1] : "write";
    if (!set_up()) return ok();
    CHECK(pipe(in) == 0 && pipe(out) == 0);
    CHECK(fcntl(in[1], F_SETPIPE_SZ, 128 * KIB) > 0 && fcntl(out[1], F_SETPIPE_SZ, 128 * KIB) > 0);
    if (strcmp(what, "write") == 0) every_way(&writing, 1);
    if (strcmp(what, "read") == 0) every_way(&reading, 1);
    if (strcmp(what, "remap") == 0) every_change(&arriving);
    return ok();
}

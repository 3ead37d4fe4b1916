/* io_uring: kernel threads and worker threads write into pages that nobody has touched; registered buffers pin them. */
#include "frames.h"
#include <linux/io_uring.h>
#include <sys/uio.h>

struct ring {
    int fd;
    unsigned *sq_tail, *sq_mask, *sq_array, *cq_head, *cq_tail, *cq_mask;
    struct io_uring_sqe *entries;
    struct io_uring_cqe *results;
};

static int set_up(struct ring *ring) {
    struct io_uring_params params = {0};
    ring->fd = (int)syscall(SYS_io_uring_setup, 8, &params);
    if (ring->fd < 0) return 0; /* switched off on this machine, or by a sandbox */
    size_t sq = params.sq_off.array + params.sq_entries * 4;
    size_t cq = params.cq_off.cqes + params.cq_entries * sizeof(struct io_uring_cqe);
    unsigned char *s = mmap(NULL, sq, RW, MAP_SHARED | MAP_POPULATE, ring->fd, IORING_OFF_SQ_RING);
    unsigned char *c = mmap(NULL, cq, RW, MAP_SHARED | MAP_POPULATE, ring->fd, IORING_OFF_CQ_RING);
    ring->entries = mmap(NULL, params.sq_entries * sizeof *ring->entries, RW, MAP_SHARED | MAP_POPULATE, ring->fd,
                         IORING_OFF_SQES);
    CHECK(s != MAP_FAILED && c != MAP_FAILED && ring->entries != MAP_FAILED);
    ring->sq_tail = (unsigned *)(s + params.sq_off.tail);
    ring->sq_mask = (unsigned *)(s + params.sq_off.ring_mask);
    ring->sq_array = (unsigned *)(s + params.sq_off.array);
    ring->cq_head = (unsigned *)(c + params.cq_off.head);
    ring->cq_tail = (unsigned *)(c + params.cq_off.tail);
    ring->cq_mask = (unsigned *)(c + params.cq_off.ring_mask);
    ring->results = (struct io_uring_cqe *)(c + params.cq_off.cqes);
    return 1;
}

static int carry_out(struct ring *ring, struct io_uring_sqe entry) {
    unsigned tail = *ring->sq_tail, at = tail & *ring->sq_mask;
    ring->entries[at] = entry;
    ring->sq_array[at] = at;
    __atomic_store_n(ring->sq_tail, tail + 1, __ATOMIC_RELEASE);
    CHECK(syscall(SYS_io_uring_enter, ring->fd, 1, 1, IORING_ENTER_GETEVENTS, NULL, 0) == 1);
    unsigned head = *ring->cq_head;
    CHECK(__atomic_load_n(ring->cq_tail, __ATOMIC_ACQUIRE) != head);
    int result = ring->results[head & *ring->cq_mask].res;
    __atomic_store_n(ring->cq_head, head + 1, __ATOMIC_RELEASE);
    return result;
}

static void read_into(struct ring *ring, int file, unsigned char opcode, unsigned char flags) {
    size_t bytes = 8 * PAGE;
    unsigned char *p = map_anon(bytes), expected[16];
    CHECK(pread(file, expected, sizeof expected, 0) == sizeof expected);
    struct io_uring_sqe entry = {.opcode = opcode, .flags = flags, .fd = file, .addr = (uintptr_t)p, .len = (unsigned)bytes};
    if (opcode == IORING_OP_READ_FIXED) {
        struct iovec buffer = {p, bytes};
        long error = syscall(SYS_io_uring_register, ring->fd, IORING_REGISTER_BUFFERS, &buffer, 1);
        if (error) FAIL("IORING_REGISTER_BUFFERS");
        CHECK_PLACED(p, 8); /* registering pins the pages, so it brings them in */
    }
    int got = carry_out(ring, entry);
    if (got != (int)bytes) FAIL("io_uring read: %d", got);
    CHECK(memcmp(p, expected, sizeof expected) == 0);
    CHECK_PLACED(p, 8);
    if (opcode == IORING_OP_READ_FIXED)
        CHECK(syscall(SYS_io_uring_register, ring->fd, IORING_UNREGISTER_BUFFERS, NULL, 0) == 0);
    CHECK(munmap(p, bytes) == 0);
}

int main(void) {
    struct ring ring;
    if (!set_up(&ring)) return ok();
    int file = open("/proc/self/exe", O_RDONLY);
    CHECK(file >= 0);
    for (int round = 0; round < 3; round++) {
        read_into(&ring, file, IORING_OP_READ, 0);
        read_into(&ring, file, IORING_OP_READ, IOSQE_ASYNC); /* by a worker thread of the kernel's */
        read_into(&ring, file, IORING_OP_READ_FIXED, 0);
    }
    CHECK(close(ring.fd) == 0);
    return ok();
}

/* The kernel goes on using pages that the program has unmapped, discarded or moved: in pipes, in a socket's queue, in
 * transfers under way. What was there when it took them is what it reads; what it writes goes nowhere else. The same
 * addresses are used again at once, so that pages which came back too early would show. */
#include "frames.h"
#include <arpa/inet.h>
#include <linux/io_uring.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/uio.h>

#ifndef SO_ZEROCOPY
#define SO_ZEROCOPY 60
#endif
#ifndef MSG_ZEROCOPY
#define MSG_ZEROCOPY 0x4000000
#endif
enum { PAGES = 8, ROUNDS = 24 };
static const size_t BYTES = PAGES * 4096;

/* Some megabytes come and go: whatever keeps pages that are given back keeps these, and works under load. */
static void give_back_much(void) {
    size_t pages = 768;
    unsigned char *p = map_anon(pages * PAGE);
    write_tags(p, pages, 99);
    CHECK(munmap(p, pages * PAGE) == 0);
    for (size_t i = 0; i < 16; i++) {
        unsigned char *q = map_anon(32 * PAGE);
        write_tags(q, 32, i);
        CHECK(munmap(q, 32 * PAGE) == 0);
    }
}

static void read_all(int from, unsigned char *into, size_t bytes) {
    for (size_t done = 0; done < bytes;) {
        ssize_t got = read(from, into + done, bytes - done);
        if (got <= 0) FAIL("read after %zu bytes: %zd", done, got);
        done += (size_t)got;
    }
}

static void into_pipe(int pipe, const void *memory) {
    struct iovec part = {(void *)memory, BYTES};
    ssize_t sent = vmsplice(pipe, &part, 1, 0);
    if (sent != (ssize_t)BYTES) FAIL("vmsplice: %zd", sent);
}

/* How memory goes and comes again. */
enum how { UNMAPPED, DISCARDED, REPLACED, MOVED_OVER, HEAP, WAYS };

static void pass_on(enum how how, unsigned char **p) {
    unsigned char *q;
    switch (how) {
    case UNMAPPED:
        CHECK(munmap(*p, BYTES) == 0);
        *p = map_anon(BYTES);
        break;
    case DISCARDED:
        CHECK(madvise(*p, BYTES, MADV_DONTNEED) == 0);
        break;
    case REPLACED:
        CHECK(mmap(*p, BYTES, RW, ANON | MAP_FIXED, -1, 0) == *p);
        break;
    case MOVED_OVER:
        q = map_anon(BYTES);
        CHECK(mremap(q, BYTES, BYTES, MREMAP_MAYMOVE | MREMAP_FIXED, *p) == *p);
        break;
    default:
        CHECK(sbrk(-(intptr_t)BYTES) != (void *)-1);
        CHECK(sbrk((intptr_t)BYTES) == *p);
    }
}

/* `tees`: the pages are in a second pipe, and of the first one only there. */
static void in_pipes(enum how how, int tees) {
    int first[2], second[2];
    unsigned char seen[PAGES * 4096], *p;
    CHECK(pipe(first) == 0 && pipe(second) == 0);
    if (how == HEAP) {
        CHECK(sbrk((intptr_t)(-(uintptr_t)sbrk(0) & (PAGE - 1))) != (void *)-1);
        p = sbrk((intptr_t)BYTES);
        CHECK(p != (void *)-1);
    } else {
        p = map_anon(BYTES);
    }
    for (unsigned round = 0; round < ROUNDS; round++) {
        fill(p, BYTES, round);
        into_pipe(first[1], p);
        int from = first[0];
        if (tees) {
            CHECK(tee(first[0], second[1], BYTES, 0) == (ssize_t)BYTES);
            read_all(first[0], seen, BYTES);
            CHECK(holds(seen, BYTES, round));
            from = second[0];
        }
        pass_on(how, &p);
        if (!all_zero(p, BYTES)) FAIL("memory that was given back (%d) is not zero, round %u", how, round);
        fill(p, BYTES, round + 1000);
        if (round % 8 == 0) give_back_much();
        read_all(from, seen, BYTES);
        if (!holds(seen, BYTES, round)) FAIL("the pipe has other bytes than it was given (%d), round %u", how, round);
        CHECK(holds(p, BYTES, round + 1000));
    }
    if (how == HEAP)
        CHECK(sbrk(-(intptr_t)BYTES) != (void *)-1);
    else
        CHECK(munmap(p, BYTES) == 0);
    for (int i = 0; i < 2; i++) CHECK(close(first[i]) == 0 && close(second[i]) == 0);
}

/* Pages in a pipe are the program's too, wherever it moves them: what it writes there is in the pipe. */
static void moved_while_in_a_pipe(size_t distance) {
    int ends[2];
    unsigned char seen[PAGES * 4096], *p = map_anon(BYTES), *place = map_anon(256 * PAGE);
    CHECK(pipe(ends) == 0);
    fill(p, BYTES, 1);
    into_pipe(ends[1], p);
    unsigned char *to = place + distance * PAGE;
    CHECK(mremap(p, BYTES, BYTES, MREMAP_MAYMOVE | MREMAP_FIXED, to) == to);
    CHECK(holds(to, BYTES, 1));
    fill(to, BYTES, 2);
    read_all(ends[0], seen, BYTES);
    if (!holds(seen, BYTES, 2)) FAIL("what was written after the move is not in the pipe, distance %zu", distance);
    CHECK(holds(to, BYTES, 2) && munmap(place, 256 * PAGE) == 0);
    CHECK(close(ends[0]) == 0 && close(ends[1]) == 0);
}

/* A connection on the loopback whose receiver takes nothing for now: pages stay in the sender's queue. */
static void connected(int ends[2]) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof address;
    int listener = socket(AF_INET, SOCK_STREAM, 0), on = 1, small = 4096, large = 4 << 20;
    CHECK(listener >= 0 && setsockopt(listener, SOL_SOCKET, SO_RCVBUF, &small, sizeof small) == 0);
    CHECK(bind(listener, (struct sockaddr *)&address, sizeof address) == 0 && listen(listener, 1) == 0);
    CHECK(getsockname(listener, (struct sockaddr *)&address, &bytes) == 0);
    CHECK((ends[0] = socket(AF_INET, SOCK_STREAM, 0)) >= 0);
    CHECK(setsockopt(ends[0], SOL_SOCKET, SO_ZEROCOPY, &on, sizeof on) == 0);
    CHECK(setsockopt(ends[0], SOL_SOCKET, SO_SNDBUF, &large, sizeof large) == 0);
    CHECK(connect(ends[0], (struct sockaddr *)&address, sizeof address) == 0);
    CHECK((ends[1] = accept(listener, NULL, NULL)) >= 0 && close(listener) == 0);
}

static void in_a_queue(enum how how) {
    enum { PARTS = 24 };
    int ends[2];
    size_t bytes[PARTS], parts = 0;
    unsigned char *p = map_anon(BYTES), seen[PAGES * 4096];
    connected(ends);
    for (; parts < PARTS; parts++) {
        fill(p, BYTES, (unsigned)parts);
        ssize_t sent = send(ends[0], p, BYTES, MSG_ZEROCOPY | MSG_DONTWAIT);
        if (sent < 0 && (errno == EAGAIN || errno == ENOBUFS)) break;
        CHECK(sent > 0);
        bytes[parts] = (size_t)sent;
        pass_on(how, &p);
        CHECK(all_zero(p, BYTES));
    }
    CHECK(parts > 4);
    fill(p, BYTES, 5000);
    give_back_much();
    for (size_t i = 0; i < parts; i++) {
        read_all(ends[1], seen, bytes[i]);
        if (!holds(seen, bytes[i], (unsigned)i)) FAIL("part %zu of %zu of the connection is not what was sent (%d)", i, parts, how);
    }
    CHECK(munmap(p, BYTES) == 0 && close(ends[0]) == 0 && close(ends[1]) == 0);
}

struct ring {
    int fd;
    unsigned *sq_tail, *sq_mask, *sq_array, *cq_head, *cq_tail, *cq_mask;
    struct io_uring_sqe *entries;
    struct io_uring_cqe *results;
};

static int set_up(struct ring *ring) {
    struct io_uring_params params = {0};
    ring->fd = (int)syscall(SYS_io_uring_setup, 64, &params);
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

static void submit(struct ring *ring, struct io_uring_sqe entry) {
    unsigned tail = *ring->sq_tail, at = tail & *ring->sq_mask;
    ring->entries[at] = entry;
    ring->sq_array[at] = at;
    __atomic_store_n(ring->sq_tail, tail + 1, __ATOMIC_RELEASE);
    CHECK(syscall(SYS_io_uring_enter, ring->fd, 1, 0, 0, NULL, 0) == 1);
}

static int wait_for_one(struct ring *ring) {
    CHECK(syscall(SYS_io_uring_enter, ring->fd, 0, 1, IORING_ENTER_GETEVENTS, NULL, 0) >= 0);
    unsigned head = *ring->cq_head;
    CHECK(__atomic_load_n(ring->cq_tail, __ATOMIC_ACQUIRE) != head);
    int result = ring->results[head & *ring->cq_mask].res;
    __atomic_store_n(ring->cq_head, head + 1, __ATOMIC_RELEASE);
    return result;
}

/* A read into a registered buffer waits for a pipe while its memory goes (or moves, and the data with it). */
static void into_a_registered_buffer(struct ring *ring, enum how how, int moves) {
    int ends[2];
    CHECK(pipe(ends) == 0);
    for (unsigned round = 0; round < 6; round++) {
        unsigned char *p = map_anon(BYTES), *place = map_anon(64 * PAGE), data[PAGES * 4096];
        struct iovec buffer = {p, BYTES};
        fill(p, BYTES, 7);
        if (syscall(SYS_io_uring_register, ring->fd, IORING_REGISTER_BUFFERS, &buffer, 1)) FAIL("IORING_REGISTER_BUFFERS");
        submit(ring, (struct io_uring_sqe){.opcode = IORING_OP_READ_FIXED, .fd = ends[0], .addr = (uintptr_t)p, .len = BYTES});
        unsigned char *to = place + 5 * PAGE;
        if (moves) {
            CHECK(mremap(p, BYTES, BYTES, MREMAP_MAYMOVE | MREMAP_FIXED, to) == to);
        } else {
            pass_on(how, &p);
            fill(p, BYTES, 8);
        }
        give_back_much();
        fill(data, BYTES, 9);
        CHECK(write(ends[1], data, BYTES) == (ssize_t)BYTES);
        int got = wait_for_one(ring);
        if (got != (int)BYTES) FAIL("a read into a registered buffer: %d", got);
        CHECK(holds(moves ? to : p, BYTES, moves ? 9 : 8));
        CHECK(syscall(SYS_io_uring_register, ring->fd, IORING_UNREGISTER_BUFFERS, NULL, 0) == 0);
        if (!moves) CHECK(munmap(p, BYTES) == 0);
        CHECK(munmap(place, 64 * PAGE) == 0);
    }
    CHECK(close(ends[0]) == 0 && close(ends[1]) == 0);
}

/* Reads past the page cache, each into memory that is given back while the device works. */
static void past_the_page_cache(struct ring *ring, enum how how) {
    char name[] = "references-XXXXXX";
    int file = mkstemp(name), direct;
    size_t bytes = 64 * BYTES;
    unsigned char *all = map_anon(bytes);
    if (file < 0) return; /* a directory of somebody else */
    fill(all, bytes, 3);
    CHECK(write(file, all, bytes) == (ssize_t)bytes && fsync(file) == 0);
    direct = open(name, O_RDONLY | O_DIRECT);
    CHECK(unlink(name) == 0 && munmap(all, bytes) == 0);
    for (unsigned part = 0; direct >= 0 && part < 64; part++) { /* EINVAL: this file system has none */
        unsigned char *p = map_anon(BYTES);
        submit(ring, (struct io_uring_sqe){.opcode = IORING_OP_READ, .fd = direct, .addr = (uintptr_t)p, .len = BYTES, .off = part * BYTES});
        pass_on(how, &p);
        fill(p, BYTES, part + 10);
        (void)wait_for_one(ring);
        CHECK(holds(p, BYTES, part + 10) && munmap(p, BYTES) == 0);
    }
    if (direct >= 0) CHECK(close(direct) == 0);
    CHECK(close(file) == 0);
}

int main(void) {
    unsigned char *placed = map_anon(1000 * PAGE);
    write_tags(placed, 1000, 1);
    give_back_much();
    for (enum how how = UNMAPPED; how < WAYS; how++) {
        in_pipes(how, 0);
        in_pipes(how, 1);
        if (how != HEAP) in_a_queue(how);
    }
    moved_while_in_a_pipe(64);
    moved_while_in_a_pipe(5);
    struct ring ring;
    if (set_up(&ring)) {
        for (enum how how = UNMAPPED; how < HEAP; how++) {
            into_a_registered_buffer(&ring, how, 0);
            past_the_page_cache(&ring, how);
        }
        into_a_registered_buffer(&ring, UNMAPPED, 1);
        CHECK(close(ring.fd) == 0);
    }
    CHECK_PLACED(placed, 1000);
    check_tags(placed, 1000, 1);
    return ok();
}

/* Pages in a pipe: the reader gets the bytes that were there when they were put in. Argument: how they got there.
 *   vmsplice  by vmsplice        gift  the same with SPLICE_F_GIFT
 *   tee       by tee, from a pipe that has been read since        splice  through two pipes into a connected socket */
#include "references.h"
#include <netinet/in.h>

static int ends[2], second[2], sender, receiver;
static unsigned splice_flags;
static unsigned char got[MOST_PARTS * PART];

static void make_pipe(int pipe_ends[2]) {
    CHECK(pipe(pipe_ends) == 0);
    CHECK(fcntl(pipe_ends[1], F_SETPIPE_SZ, 256 * KIB) >= (int)(64 * PAGE));
}

static void connect_loopback(void) {
    int listening = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t length = sizeof at;
    CHECK(bind(listening, (struct sockaddr *)&at, length) == 0 && listen(listening, 1) == 0);
    CHECK(getsockname(listening, (struct sockaddr *)&at, &length) == 0);
    sender = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(connect(sender, (struct sockaddr *)&at, length) == 0);
    receiver = accept(listening, NULL, NULL);
    CHECK(receiver >= 0 && close(listening) == 0);
}

static void into_pipe(const struct parts *parts, unsigned seed) {
    (void)seed;
    for (size_t i = 0; i < parts->count; i++) {
        struct iovec part = parts->part[i];
        CHECK(vmsplice(ends[1], &part, 1, splice_flags) == (ssize_t)part.iov_len);
    }
}

static void out_of(int fd, const struct parts *parts, unsigned seed, const char *what) {
    read_all(fd, got, bytes_of(parts));
    check_parts(parts, got, seed, what);
}

static void from_pipe(const struct parts *parts, unsigned seed) { out_of(ends[0], parts, seed, "pipe"); }

static void into_both(const struct parts *parts, unsigned seed) {
    into_pipe(parts, seed);
    CHECK(tee(ends[0], second[1], bytes_of(parts), 0) == (ssize_t)bytes_of(parts));
    read_all(ends[0], got, bytes_of(parts));
}

static void from_second(const struct parts *parts, unsigned seed) { out_of(second[0], parts, seed, "teed pipe"); }

static void into_socket(const struct parts *parts, unsigned seed) {
    into_pipe(parts, seed);
    for (size_t left = bytes_of(parts); left > 0;) {
        ssize_t moved = splice(ends[0], NULL, second[1], NULL, left, 0);
        CHECK(moved > 0);
        left -= (size_t)moved;
    }
    for (size_t left = bytes_of(parts); left > 0;) {
        ssize_t moved = splice(second[0], NULL, sender, NULL, left, 0);
        CHECK(moved > 0);
        left -= (size_t)moved;
    }
}

static void from_socket(const struct parts *parts, unsigned seed) { out_of(receiver, parts, seed, "socket"); }

int main(int argc, char **argv) {
    const char *how = argc > 1 ? argv[1] : "vmsplice";
    static const struct channel one = {into_pipe, from_pipe}, two = {into_both, from_second},
                                three = {into_socket, from_socket};
    make_pipe(ends);
    make_pipe(second);
    if (strcmp(how, "splice") == 0) connect_loopback();
    if (strcmp(how, "gift") == 0) splice_flags = SPLICE_F_GIFT;
    every_way(strcmp(how, "splice") == 0 ? &three : strcmp(how, "tee") == 0 ? &two : &one, 1);
    return ok();
}

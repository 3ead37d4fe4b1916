/* MSG_ZEROCOPY on loopback: pages wait in the sender's queue while the receiver's window is closed, by reference. */
#include "references.h"
#include <linux/errqueue.h>
#include <netinet/in.h>

static int sender, receiver;
static size_t in_the_way; /* bytes that fill the window, before the pages */
static unsigned char junk[64 * KIB], got[MOST_PARTS * PART];

static void set(int fd, int option, int value) {
    CHECK(setsockopt(fd, SOL_SOCKET, option, &value, sizeof value) == 0);
}

static void connect_loopback(void) {
    int listening = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t length = sizeof at;
    set(listening, SO_RCVBUF, 16 * KIB);
    CHECK(bind(listening, (struct sockaddr *)&at, length) == 0 && listen(listening, 1) == 0);
    CHECK(getsockname(listening, (struct sockaddr *)&at, &length) == 0);
    sender = socket(AF_INET, SOCK_STREAM, 0);
    set(sender, SO_SNDBUF, 4 * MIB);
    set(sender, SO_ZEROCOPY, 1);
    CHECK(connect(sender, (struct sockaddr *)&at, length) == 0);
    receiver = accept(listening, NULL, NULL);
    CHECK(receiver >= 0 && close(listening) == 0);
}

/* More than the receiver takes: what is sent then stays with the sender. */
static void close_window(void) {
    for (in_the_way = 0; in_the_way < 128 * KIB;) {
        ssize_t sent = send(sender, junk, sizeof junk, MSG_DONTWAIT);
        CHECK(sent > 0);
        in_the_way += (size_t)sent;
    }
}

static void queue_pages(const struct parts *parts, unsigned seed) {
    (void)seed;
    close_window();
    for (size_t i = 0; i < parts->count; i++) {
        size_t bytes = parts->part[i].iov_len;
        CHECK(send(sender, parts->part[i].iov_base, bytes, MSG_ZEROCOPY | MSG_DONTWAIT) == (ssize_t)bytes);
    }
}

/* Notices of pages that the kernel has let go; they have to be read, or the queue runs over. */
static void read_notices(void) {
    char control[128];
    struct msghdr notice = {.msg_control = control};
    for (notice.msg_controllen = sizeof control; recvmsg(sender, &notice, MSG_ERRQUEUE | MSG_DONTWAIT) >= 0;)
        notice.msg_controllen = sizeof control;
    CHECK(errno == EAGAIN);
}

static void receive(const struct parts *parts, unsigned seed) {
    while (in_the_way) {
        size_t step = in_the_way < sizeof junk ? in_the_way : sizeof junk;
        read_all(receiver, junk, step);
        in_the_way -= step;
    }
    read_all(receiver, got, bytes_of(parts));
    check_parts(parts, got, seed, "MSG_ZEROCOPY");
    read_notices();
}

int main(void) {
    static const struct channel channel = {queue_pages, receive};
    connect_loopback();
    every_way(&channel, 1);
    return ok();
}

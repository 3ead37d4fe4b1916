/* Arguments of calls lie in pages that the program's own userfaultfd handler provides, and the handler maps memory itself before it does.
 * Regression: the library read the array of process_madvise, and the range to register, on its own stacks; four such calls occupied
 * them all, and the handler waited for one. */
#include "guest.h"
#include <linux/userfaultfd.h>
#include <sys/ioctl.h>
#include <sys/uio.h>

enum { THREADS = 6 };
static unsigned char *arguments, *target;
static int uffd, self;

static void *advises(void *at) {
    if (process_madvise(self, at, 1, MADV_COLD, 0) != (ssize_t)PAGE) FAIL("process_madvise");
    return NULL;
}

static void *registers(void *at) {
    if (ioctl(uffd, UFFDIO_REGISTER, at) != 0) FAIL("UFFDIO_REGISTER");
    return NULL;
}

static int enrol(unsigned char *p, size_t bytes) {
    struct uffdio_register range = {.range = {(uintptr_t)p, bytes}, .mode = UFFDIO_REGISTER_MODE_MISSING};
    return ioctl(uffd, UFFDIO_REGISTER, &range);
}

static void with(void *(*call)(void *), int is_to_register) {
    pthread_t thread[THREADS];
    struct uffdio_api api = {.api = UFFD_API};
    uffd = (int)syscall(SYS_userfaultfd, O_CLOEXEC);
    if (uffd < 0 || ioctl(uffd, UFFDIO_API, &api) != 0) _exit(0); /* not for this user */
    arguments = map_anon(THREADS * PAGE);
    target = map_anon(THREADS * PAGE);
    if (enrol(arguments, THREADS * PAGE) != 0) {
        CHECK(errno == EINVAL && has_reserved_pages());
        _exit(0);
    }
    memset(target, 1, THREADS * PAGE);
    self = (int)syscall(SYS_pidfd_open, getpid(), 0);
    struct iovec probe = {target, PAGE};
    if (!is_to_register && process_madvise(self, &probe, 1, MADV_COLD, 0) < 0) _exit(0); /* not on this kernel */
    for (size_t i = 0; i < THREADS; i++) thread[i] = start(call, arguments + i * PAGE);
    for (int i = 0; i < THREADS; i++) {
        struct uffd_msg message;
        CHECK(read(uffd, &message, sizeof message) == sizeof message);
    }
    for (size_t i = 0; i < THREADS; i++) {
        unsigned char *page = map_anon(PAGE), *part = target + i * PAGE;
        if (is_to_register)
            *(struct uffdio_register *)page =
                (struct uffdio_register){.range = {(uintptr_t)part, PAGE}, .mode = UFFDIO_REGISTER_MODE_MISSING};
        else
            *(struct iovec *)page = (struct iovec){part, PAGE};
        struct uffdio_copy copy = {.dst = (uintptr_t)(arguments + i * PAGE), .src = (uintptr_t)page, .len = PAGE};
        CHECK(ioctl(uffd, UFFDIO_COPY, &copy) == 0);
    }
    for (size_t i = 0; i < THREADS; i++) CHECK(pthread_join(thread[i], NULL) == 0);
    _exit(0);
}

int main(void) {
    for (int is_to_register = 0; is_to_register < 2; is_to_register++) {
        pid_t child = fork();
        if (child == 0) with(is_to_register ? registers : advises, is_to_register);
        if (wait_20_s_for(child) != 0) FAIL("case %d", is_to_register);
    }
    return ok();
}

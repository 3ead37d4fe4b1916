/* A fork while another thread is in dl_iterate_phdr, and has the dynamic linker's lock: the child, in which nobody will
 * ever give it back, works on its memory. */
#include "guest.h"
#include <link.h>

static volatile int inside, leave;

static int wait_inside(struct dl_phdr_info *object, size_t size, void *unused) {
    (void)object, (void)size, (void)unused;
    inside = 1;
    while (!leave) usleep(100);
    return 1;
}

static void *iterate(void *unused) {
    dl_iterate_phdr(wait_inside, unused);
    return NULL;
}

int main(void) {
    work_on_memory();
    pthread_t thread = start(iterate, NULL);
    while (!inside) usleep(100);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        work_on_memory();
        _exit(0);
    }
    int status = wait_20_s_for(child);
    leave = 1;
    pthread_join(thread, NULL);
    CHECK(status == 0);
    return ok();
}

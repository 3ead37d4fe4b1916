/* A thread whose stack was made without a guard maps guard pages over the end of it by itself, when other threads run (Java
 * does so). Regression: on reserved pages this failed with ENOMEM. */
#include "guest.h"

enum { THREADS = 4 };
static const size_t STACK = MIB, GUARD = 16 * KIB;

static void *guard_oneself(void *unused) {
    pthread_attr_t attributes;
    void *stack;
    size_t bytes;
    CHECK(pthread_getattr_np(pthread_self(), &attributes) == 0);
    CHECK(pthread_attr_getstack(&attributes, &stack, &bytes) == 0 && pthread_attr_destroy(&attributes) == 0);
    unsigned char *low = (unsigned char *)(((uintptr_t)stack + PAGE - 1) & ~(PAGE - 1));
    for (int i = 0; i < 20; i++) {
        CHECK(mmap(low, GUARD, RW, ANON | MAP_FIXED, -1, 0) == low);
        CHECK(mprotect(low, GUARD, PROT_NONE) == 0);
        CHECK(mprotect(low, GUARD, RW) == 0);
        memset(low, i, GUARD);
        CHECK(mmap(low, GUARD, PROT_NONE, ANON | MAP_FIXED | MAP_NORESERVE, -1, 0) == low);
    }
    return unused;
}

int main(void) {
    pthread_t thread[THREADS];
    pthread_attr_t attributes;
    CHECK(pthread_attr_init(&attributes) == 0 && pthread_attr_setguardsize(&attributes, 0) == 0);
    CHECK(pthread_attr_setstacksize(&attributes, STACK) == 0);
    for (int i = 0; i < THREADS; i++) CHECK(pthread_create(&thread[i], &attributes, guard_oneself, NULL) == 0);
    for (int i = 0; i < THREADS; i++) CHECK(pthread_join(thread[i], NULL) == 0);
    return ok();
}

/* dlopen and dlclose, again and again, also in another namespace; argument: the plugin's path. */
#include "guest.h"
#include <dlfcn.h>

static int call(void *handle) {
    union {
        void *object;
        int (*function)(void);
    } symbol = {dlsym(handle, "plugin_check")};
    CHECK(symbol.object);
    return symbol.function();
}

static void *from_thread(void *path) {
    for (int i = 0; i < 10; i++) {
        void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
        if (!handle) FAIL("dlopen: %s", dlerror());
        CHECK(call(handle) >= 77);
        churn(i + 1, 50, 200 * KIB);
        CHECK(dlclose(handle) == 0);
    }
    return NULL;
}

int main(int argc, char **argv) {
    CHECK(argc == 2);
    for (int i = 0; i < 10; i++) {
        void *handle = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
        if (!handle) FAIL("dlopen: %s", dlerror());
        CHECK(call(handle) == 77);
        CHECK(call(handle) == 78);
        CHECK(dlclose(handle) == 0);
        churn(i + 1, 100, 300 * KIB);
    }
    CHECK(dlopen("/nonexistent.so", RTLD_NOW) == NULL);
    pthread_t a = start(from_thread, argv[1]), b = start(from_thread, argv[1]);
    CHECK(pthread_join(a, NULL) == 0 && pthread_join(b, NULL) == 0);
    void *other = dlmopen(LM_ID_NEWLM, argv[1], RTLD_NOW);
    if (!other) FAIL("dlmopen: %s", dlerror());
    CHECK(call(other) == 77);
    CHECK(dlclose(other) == 0);
    return ok();
}

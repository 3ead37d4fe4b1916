/* Machine code written into mapped memory, then made executable (just-in-time compilers). */
#include "guest.h"

int main(void) {
#if defined __x86_64__
    static const unsigned char code[] = {0xB8, 42, 0, 0, 0, 0xC3}; /* mov eax, 42; ret */
#elif defined __aarch64__
    static const unsigned char code[] = {0x40, 0x05, 0x80, 0x52, 0xC0, 0x03, 0x5F, 0xD6}; /* mov w0, 42; ret */
#endif
    for (int i = 0; i < 40; i++) {
        size_t bytes = i % 2 ? PAGE : 3 * MIB;
        unsigned char *p = map_anon(bytes);
        union {
            void *object;
            int (*function)(void);
        } entry = {p + bytes - PAGE};
        memcpy(entry.object, code, sizeof code);
        CHECK(mprotect(p, bytes, PROT_READ | PROT_EXEC) == 0);
        __builtin___clear_cache(entry.object, (char *)entry.object + sizeof code);
        CHECK(entry.function() == 42);
        CHECK(fault_signal(p, WRITE_ACCESS) == SIGSEGV);
        CHECK(munmap(p, bytes) == 0);
    }
    unsigned char *data = map_anon(PAGE); /* not executable unless asked for */
    memcpy(data, code, sizeof code);
    union {
        void *object;
        int (*function)(void);
    } entry = {data};
    pid_t pid = fork();
    if (pid == 0) _exit(entry.function());
    CHECK(wait_for(pid) == 128 + SIGSEGV);
    return ok();
}

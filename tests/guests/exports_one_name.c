/* A program that other objects can find one function in: as the runtimes of sanitizers are found. -Dkeep_me=NAME renames it. */
#include "guest.h"

void keep_me(void);
void keep_me(void) {}

int main(void) {
    work_on_memory();
    return ok();
}

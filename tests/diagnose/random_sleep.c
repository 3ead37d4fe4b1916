// Nothing that can be switched makes it jump: it sleeps as long as chance says.
#include "work.h"
#include <sys/random.h>
#include <unistd.h>

int main(void) {
    unsigned char draw = 0;
    if (getrandom(&draw, 1, 0) != 1)
        return 1;
    usleep(20000 + 200 * draw);
}

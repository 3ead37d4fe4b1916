/* Linked statically, or against musl: nothing can be preloaded, and pagelab must refuse it and say why. */
#include <stdio.h>
#include <stdlib.h>

int main(void) {
    char *p = malloc(100000);
    if (!p) return 1;
    p[99999] = 1;
    puts("ok");
    free(p);
    return 0;
}

// An A/A program: it sleeps long, always as long, and hardly computes.
#include "work.h"
#include <unistd.h>

int main(void) { usleep(100000); }

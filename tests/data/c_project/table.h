#ifndef TABLE_H
#define TABLE_H
#include <stddef.h>
#include <stdint.h>

struct row {
    uint64_t key;
    double value;
    char name[24];
};

struct table {
    struct row *rows;
    size_t used, room;
};

void table_add(struct table *table, uint64_t key, double value);
const struct row *table_find(const struct table *table, uint64_t key);
void table_sort(struct table *table);
void table_free(struct table *table);
#endif

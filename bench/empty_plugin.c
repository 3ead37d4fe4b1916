/* What the emulator's plugin interface costs by itself: a callback for each memory access, that does nothing. Declared
   from the interface's documentation (version 1: QEMU 4.2 to 8.2). */
#include <stddef.h>
#include <stdint.h>

__attribute__((visibility("default"))) int qemu_plugin_version = 1;

struct block;
struct instruction;
void qemu_plugin_register_vcpu_tb_trans_cb(uint64_t id, void (*translated)(uint64_t id, struct block *block));
size_t qemu_plugin_tb_n_insns(const struct block *block);
struct instruction *qemu_plugin_tb_get_insn(const struct block *block, size_t index);
void qemu_plugin_register_vcpu_mem_cb(struct instruction *instruction,
                                      void (*accessed)(unsigned vcpu, uint32_t info, uint64_t address, void *data),
                                      int registers, int accesses, void *data);

enum { NO_REGISTERS = 0, ALL_ACCESSES = 3 };

static void accessed(unsigned vcpu, uint32_t info, uint64_t address, void *data) {
    (void)vcpu, (void)info, (void)address, (void)data;
}

static void translated(uint64_t id, struct block *block) {
    (void)id;
    for (size_t i = 0; i < qemu_plugin_tb_n_insns(block); i++)
        qemu_plugin_register_vcpu_mem_cb(qemu_plugin_tb_get_insn(block, i), accessed, NO_REGISTERS, ALL_ACCESSES, NULL);
}

__attribute__((visibility("default"))) int qemu_plugin_install(uint64_t id, const void *info, int count, char **words) {
    (void)info, (void)count, (void)words;
    qemu_plugin_register_vcpu_tb_trans_cb(id, translated);
    return 0;
}

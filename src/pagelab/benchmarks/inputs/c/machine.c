/* An abstract machine with a stack: one switch over its instructions. */
enum ${p}_instruction { ${instructions}, ${p}_JUMP, ${p}_STOP };

struct ${p}_machine { u32 stack[${depth}]; u32 top; u32 memory[64]; u32 steps; };

static u32 ${p}_pop(struct ${p}_machine *machine)
{
    return machine->top ? machine->stack[--machine->top] : machine->steps;
}

static void ${p}_push(struct ${p}_machine *machine, u32 value)
{
    if (machine->top < ${depth})
        machine->stack[machine->top++] = value;
    else
        machine->memory[value % 64u] ^= value;
}

static u32 ${p}_execute(struct ${p}_machine *machine, const unsigned char *code, u32 length, u32 limit)
{
    for (u32 at = 0; machine->steps < limit; machine->steps++) {
        u32 operand = code[(at + 1u) % length];
        u32 a, b;
        switch (code[at % length] % ${count}u) {
${cases}
        case ${p}_JUMP:
            if (${p}_pop(machine) & 1u)
                at += operand;
            break;
        default:
            machine->memory[operand % 64u] += machine->steps;
            break;
        }
        at += 2u;
    }
    return machine->top;
}

static u32 ${p}_run(u32 seed)
{
    static const unsigned char code[] = {${code}};
    struct ${p}_machine machine = {.top = 0};
    ${p}_push(&machine, seed);
    u32 sum = ${p}_execute(&machine, code, (u32)sizeof code, ${limit}u);
    for (u32 i = 0; i < 64; i++)
        sum = sum * 33u ^ machine.memory[i];
    return sum;
}

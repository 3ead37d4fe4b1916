/* Loops over arrays of doubles; all values are small integers, so that every order of adding gives the same digits. */
static double ${p}_a[${side}][${side}], ${p}_b[${side}][${side}], ${p}_c[${side}][${side}];

static void ${p}_fill(u32 seed)
{
    for (int i = 0; i < ${side}; i++)
        for (int j = 0; j < ${side}; j++) {
            ${p}_a[i][j] = (double)(next_u32(&seed) % 17u) - 8.0;
            ${p}_b[i][j] = (double)(next_u32(&seed) % 13u) - 6.0;
        }
}

static void ${p}_multiply(void)
{
    for (int i = 0; i < ${side}; i++)
        for (int j = 0; j < ${side}; j++) {
            double sum = 0.0;
            for (int k = 0; k < ${side}; k++)
                sum += ${p}_a[i][k] * ${p}_b[k][j];
            ${p}_c[i][j] = sum;
        }
}

static void ${p}_stencil(void)
{
    for (int i = 1; i < ${side} - 1; i++)
        for (int j = 1; j < ${side} - 1; j++)
            ${p}_b[i][j] = ${stencil};
}

static double ${p}_reduce(double x[${side}][${side}], int step)
{
    double sum = 0.0, most = x[0][0];
    for (int i = 0; i < ${side}; i += step)
        for (int j = i % step; j < ${side}; j += step) {
            sum += x[i][j];
            if (x[i][j] > most)
                most = x[i][j];
        }
    return sum + most;
}

static u32 ${p}_run(u32 seed)
{
    ${p}_fill(seed);
    ${p}_multiply();
    ${p}_stencil();
    double sum = 0.0;
    for (int step = 1; step <= ${steps}; step++)
        sum += ${p}_reduce(${p}_b, step) + ${p}_reduce(${p}_c, step);
    return (u32)(long long)sum;
}

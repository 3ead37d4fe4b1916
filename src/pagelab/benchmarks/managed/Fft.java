import java.util.Random;

/**
 * Complex Fourier transform in place, forward and back: Fft --bytes N --memory once|each --repetitions R.
 * X(k) = sum of x(n) exp(-2 pi i k n / N), decimation in time (Cooley and Tukey 1965).
 */
final class Fft {
    /** Floating-point operations that a measurement aims at: some milliseconds. */
    private static final double WORK = 8e6;
    private static final int LINES = 4;

    private Fft() {}

    private static double[] fill(int points) {
        Random draw = new Random(1);
        double[] values = new double[2 * points];
        for (int place = 0; place < values.length; place++) {
            values[place] = draw.nextDouble() - 0.5;
        }
        return values;
    }

    private static void reverseBits(double[] values) {
        int points = values.length / 2;
        int shift = Integer.numberOfLeadingZeros(points) + 1;
        for (int index = 0; index < points; index++) {
            int other = Integer.reverse(index) >>> shift;
            if (index < other) {
                for (int part = 0; part < 2; part++) {
                    double kept = values[2 * index + part];
                    values[2 * index + part] = values[2 * other + part];
                    values[2 * other + part] = kept;
                }
            }
        }
    }

    private static void transform(double[] values, double sign) {
        int points = values.length / 2;
        reverseBits(values);
        for (int half = 1; half < points; half *= 2) {
            for (int offset = 0; offset < half; offset++) {
                double angle = sign * Math.PI * offset / half;
                double re = Math.cos(angle);
                double im = Math.sin(angle);
                for (int low = 2 * offset; low < 2 * points; low += 4 * half) {
                    int high = low + 2 * half;
                    double turnedRe = values[high] * re - values[high + 1] * im;
                    double turnedIm = values[high] * im + values[high + 1] * re;
                    values[high] = values[low] - turnedRe;
                    values[high + 1] = values[low + 1] - turnedIm;
                    values[low] += turnedRe;
                    values[low + 1] += turnedIm;
                }
            }
        }
    }

    private static void thereAndBack(double[] values, int operations) {
        double scale = 2.0 / values.length;
        for (int operation = 0; operation < operations; operation++) {
            transform(values, -1);
            transform(values, 1);
            for (int place = 0; place < values.length; place++) {
                values[place] *= scale;
            }
        }
    }

    /** Number of sampled lines that agree with the definition. */
    private static int rightLines(int points) {
        double[] signal = fill(points);
        double[] found = fill(points);
        transform(found, -1);
        int right = 0;
        for (int number = 0; number < LINES; number++) {
            int k = 1 + (int) ((long) number * (points - 1) / LINES);
            double re = 0;
            double im = 0;
            for (int n = 0; n < points; n++) {
                double angle = -2 * Math.PI * ((long) k * n % points) / points;
                re += signal[2 * n] * Math.cos(angle) - signal[2 * n + 1] * Math.sin(angle);
                im += signal[2 * n] * Math.sin(angle) + signal[2 * n + 1] * Math.cos(angle);
            }
            double off = Math.abs(found[2 * k] - re) + Math.abs(found[2 * k + 1] - im);
            right += off < 1e-9 * Math.sqrt(points) ? 1 : 0;
        }
        return right;
    }

    public static void main(String[] words) throws Exception {
        String memory = Measure.option(words, "memory", "once");
        if (!memory.equals("once") && !memory.equals("each")) {
            System.err.println("--memory " + memory + ": allowed: once, each");
            System.exit(2);
        }
        int points = Integer.highestOneBit(Math.max(Measure.option(words, "bytes", 32768) / 16, 4));
        int rounds = Integer.numberOfTrailingZeros(points);
        int operations = (int) Math.max(1, WORK / (10.0 * points * rounds));
        int right = rightLines(points);
        double[] values = fill(points);
        for (int repetition = 0; repetition < Measure.option(words, "repetitions", 10); repetition++) {
            if (memory.equals("each")) {
                values = fill(points);
            }
            long start = System.nanoTime();
            thereAndBack(values, operations);
            Measure.report("fft", System.nanoTime() - start, operations);
        }
        double[] wanted = fill(points);
        for (int place = 0; place < wanted.length; place++) {
            right += Math.abs(values[place] - wanted[place]) < 1e-9 ? 1 : 0;
        }
        Measure.conclude(right, LINES + wanted.length);
    }
}

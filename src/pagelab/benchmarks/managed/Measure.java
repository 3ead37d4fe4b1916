import java.io.FileOutputStream;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.util.Locale;

/** What the Java benchmarks share. */
final class Measure {
    private Measure() {}

    /** Reports the mean time of an operation, in ns, to whoever asked (PAGELAB_MEASURE_FD). */
    static void report(String name, long elapsedNs, long operations) throws IOException {
        String descriptor = System.getenv("PAGELAB_MEASURE_FD");
        if (descriptor == null) {
            return;
        }
        double value = (double) elapsedNs / operations;
        String line = String.format(Locale.ROOT, "{\"name\":\"%s\",\"value\":%.3f,\"unit\":\"ns\"}%n", name, value);
        // Java has no way to an inherited descriptor but by name; appending, as each opening begins at its own place.
        try (FileOutputStream sink = new FileOutputStream("/proc/self/fd/" + descriptor, true)) {
            sink.write(line.getBytes(StandardCharsets.US_ASCII));
        }
    }

    /** Says whether the results were proved; ends the program when not. */
    static void conclude(long right, long checked) {
        if (right != checked) {
            System.err.println(right + " of " + checked + " results are right: memory or code is broken");
            System.exit(1);
        }
        System.out.println(checked + " results verified");
    }

    /** The word after --name. */
    static String option(String[] words, String name, String fallback) {
        for (int place = 0; place + 1 < words.length; place++) {
            if (words[place].equals("--" + name)) {
                return words[place + 1];
            }
        }
        return fallback;
    }

    static int option(String[] words, String name, int fallback) {
        return Integer.parseInt(option(words, name, Integer.toString(fallback)));
    }
}

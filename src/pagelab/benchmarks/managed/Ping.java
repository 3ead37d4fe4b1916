import com.sun.net.httpserver.HttpServer;
import java.io.BufferedReader;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.EOFException;
import java.io.IOException;
import java.io.InputStream;
import java.io.InputStreamReader;
import java.io.OutputStream;
import java.lang.management.ManagementFactory;
import java.net.HttpURLConnection;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.net.URL;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;

/**
 * Calls of one method in another process over loopback: Ping --protocol tcp|http --repetitions R --calls N.
 * TCP: numbers of 8 bytes. HTTP: XML envelopes through the platform's own client and server.
 */
final class Ping {
    private static final int PATIENCE_MS = 10_000;

    private Ping() {}

    /** Makes a call and waits for its answer. */
    private interface Client extends AutoCloseable {
        long call(long argument) throws IOException;

        @Override
        default void close() throws IOException {}
    }

    /** Anything that only the server could have computed (SplitMix64's finaliser). */
    private static long method(long argument) {
        long z = argument ^ 0x70696e67L;
        z = (z ^ z >>> 30) * 0xbf58476d1ce4e5b9L;
        z = (z ^ z >>> 27) * 0x94d049bb133111ebL;
        return z ^ z >>> 31;
    }

    private static byte[] envelope(String element, long number) {
        String text = "<?xml version=\"1.0\"?><soap:Envelope xmlns:soap=\"http://schemas.xmlsoap.org/soap/envelope/\">"
            + "<soap:Body><" + element + ">" + number + "</" + element + "></soap:Body></soap:Envelope>";
        return text.getBytes(StandardCharsets.UTF_8);
    }

    private static long numberIn(InputStream body, String element) throws IOException {
        String text = new String(body.readAllBytes(), StandardCharsets.UTF_8);
        int begin = text.indexOf("<" + element + ">") + element.length() + 2;
        return Long.parseLong(text.substring(begin, text.indexOf("</" + element + ">")));
    }

    private static void serveTcp() throws IOException {
        try (ServerSocket listener = new ServerSocket(0, 1, InetAddress.getLoopbackAddress())) {
            System.out.println(listener.getLocalPort());
            try (Socket socket = listener.accept()) {
                socket.setTcpNoDelay(true);
                DataInputStream in = new DataInputStream(socket.getInputStream());
                DataOutputStream out = new DataOutputStream(socket.getOutputStream());
                while (true) {
                    out.writeLong(method(in.readLong()));
                }
            } catch (EOFException end) {
                return; // the client closed its end
            }
        }
    }

    private static void serveHttp() throws IOException {
        System.setProperty("sun.net.httpserver.nodelay", "true");
        HttpServer server = HttpServer.create(new InetSocketAddress(InetAddress.getLoopbackAddress(), 0), 1);
        server.createContext("/ping", exchange -> {
            byte[] answer = envelope("pingResponse", method(numberIn(exchange.getRequestBody(), "ping")));
            exchange.getResponseHeaders().set("Content-Type", "text/xml");
            exchange.sendResponseHeaders(200, answer.length);
            try (OutputStream body = exchange.getResponseBody()) {
                body.write(answer);
            }
        });
        server.start();
        System.out.println(server.getAddress().getPort());
        while (System.in.read() >= 0) {
            continue; // the client's process holds the other end until it is done
        }
        server.stop(0);
    }

    private static Client tcpClient(int port) throws IOException {
        Socket socket = new Socket(InetAddress.getLoopbackAddress(), port);
        socket.setTcpNoDelay(true);
        socket.setSoTimeout(PATIENCE_MS);
        DataInputStream in = new DataInputStream(socket.getInputStream());
        DataOutputStream out = new DataOutputStream(socket.getOutputStream());
        return new Client() {
            @Override
            public long call(long argument) throws IOException {
                out.writeLong(argument);
                return in.readLong();
            }

            @Override
            public void close() throws IOException {
                socket.close();
            }
        };
    }

    private static Client httpClient(int port) throws IOException {
        URL url = new URL("http://127.0.0.1:" + port + "/ping");
        return argument -> {
            HttpURLConnection connection = (HttpURLConnection) url.openConnection();
            connection.setReadTimeout(PATIENCE_MS);
            connection.setRequestMethod("POST");
            connection.setRequestProperty("Content-Type", "text/xml");
            connection.setDoOutput(true);
            try (OutputStream body = connection.getOutputStream()) {
                body.write(envelope("ping", argument));
            }
            try (InputStream body = connection.getInputStream()) {
                return numberIn(body, "pingResponse");
            }
        };
    }

    /** The server runs as the client does. */
    private static Process startServer(String protocol) throws IOException {
        List<String> command = new ArrayList<>();
        command.add(ProcessHandle.current().info().command().orElse("java"));
        command.addAll(ManagementFactory.getRuntimeMXBean().getInputArguments());
        String path = System.getProperty("java.class.path");
        command.addAll(List.of("-cp", path, "Ping", "--protocol", protocol, "--serve", "yes"));
        return new ProcessBuilder(command).redirectError(ProcessBuilder.Redirect.INHERIT).start();
    }

    public static void main(String[] words) throws Exception {
        String protocol = Measure.option(words, "protocol", "tcp");
        boolean tcp = protocol.equals("tcp");
        if (Measure.option(words, "serve", null) != null) {
            if (tcp) {
                serveTcp();
            } else {
                serveHttp();
            }
            return;
        }
        Process server = startServer(protocol);
        int port = Integer.parseInt(new BufferedReader(new InputStreamReader(server.getInputStream())).readLine());
        Client client = tcp ? tcpClient(port) : httpClient(port);
        int calls = Measure.option(words, "calls", 200);
        long right = 0;
        long checked = 0;
        for (int repetition = 0; repetition < Measure.option(words, "repetitions", 10); repetition++) {
            long[] answers = new long[calls];
            long first = (long) repetition * calls;
            long start = System.nanoTime();
            for (int number = 0; number < calls; number++) {
                answers[number] = client.call(first + number);
            }
            Measure.report("ping", System.nanoTime() - start, calls);
            for (int number = 0; number < calls; number++) {
                right += answers[number] == method(first + number) ? 1 : 0;
            }
            checked += calls;
        }
        // TCP's server ends with the connection, HTTP's with its input.
        client.close();
        server.getOutputStream().close();
        if (server.waitFor() != 0) {
            System.err.println("the server failed");
            System.exit(2);
        }
        Measure.conclude(right, checked);
    }
}

"""Calls of one method in another process over loopback: ``ping.py --protocol tcp|http --repetitions R --calls N``.

TCP: numbers of 8 bytes. HTTP: XML envelopes through the standard library's client, server and parser.
"""

import http.client
import http.server
import socket
import subprocess
import sys
from xml.etree import ElementTree

from measure import conclude, measured, option

PATIENCE_S = 10
ENVELOPE = (
    '<?xml version="1.0"?><soap:Envelope xmlns:soap="http://schemas.xmlsoap.org/soap/envelope/">'
    "<soap:Body><{0}>{1}</{0}></soap:Body></soap:Envelope>"
)


def method(argument):
    """Anything that only the server could have computed (SplitMix64's finaliser)."""
    z = argument ^ 0x70696E67
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 & 0xFFFFFFFFFFFFFFFF
    z = (z ^ z >> 27) * 0x94D049BB133111EB & 0xFFFFFFFFFFFFFFFF
    return z ^ z >> 31


def number(envelope, element):
    return int(ElementTree.fromstring(envelope).find(f".//{element}").text)


def receive(connection):
    """Eight bytes, or nothing at the end."""
    data = b""
    while len(data) < 8:
        more = connection.recv(8 - len(data))
        if not more:
            return b""
        data += more
    return data


def serve_tcp():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        print(listener.getsockname()[1], flush=True)
        connection, _ = listener.accept()
    with connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        while call := receive(connection):
            connection.sendall(method(int.from_bytes(call, "little")).to_bytes(8, "little"))


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    timeout = PATIENCE_S

    def do_POST(self):
        argument = number(self.rfile.read(int(self.headers["Content-Length"])), "ping")
        body = ENVELOPE.format("pingResponse", method(argument)).encode()
        self.send_response(200)
        self.send_header("Content-Type", "text/xml; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


def serve_http():
    with http.server.HTTPServer(("127.0.0.1", 0), Handler) as server:
        print(server.server_address[1], flush=True)
        server.handle_request()  # one connection, with all its requests


def tcp_client(port):
    connection = socket.create_connection(("127.0.0.1", port), PATIENCE_S)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def call(argument):
        connection.sendall(argument.to_bytes(8, "little"))
        return int.from_bytes(receive(connection), "little")

    return call, connection.close


def http_client(port):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S)

    def call(argument):
        connection.request("POST", "/ping", ENVELOPE.format("ping", argument), {"Content-Type": "text/xml"})
        return number(connection.getresponse().read(), "pingResponse")

    return call, connection.close


def main():
    protocol = option("protocol", "tcp", ("tcp", "http"))
    if "--serve" in sys.argv:
        return serve_tcp() if protocol == "tcp" else serve_http()
    own = [sys.executable, *interpreter_flags(), __file__, "--serve", "--protocol", protocol]
    server = subprocess.Popen(own, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True)
    port = int(server.stdout.readline())
    call, close = tcp_client(port) if protocol == "tcp" else http_client(port)
    calls, right, checked = option("calls", 100), 0, 0
    for repetition in range(option("repetitions", 10)):
        arguments = range(repetition * calls, (repetition + 1) * calls)
        answers = measured("ping", calls, lambda arguments=arguments: [call(argument) for argument in arguments])
        right += sum(answer == method(argument) for argument, answer in zip(arguments, answers))
        checked += calls
    close()
    if server.wait(PATIENCE_S) != 0:
        sys.exit("the server failed")
    return conclude(right, checked)


def interpreter_flags():
    """The server runs as the client does: PyPy's own switches are not in ``sys.flags``, so they are passed by name."""
    words = option("interpreter", "")
    return words.split(",") if words else []


if __name__ == "__main__":
    main()

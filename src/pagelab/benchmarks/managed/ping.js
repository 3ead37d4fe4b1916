// Calls of one method in another process over loopback: ping.js --protocol tcp|http --repetitions R --calls N
// TCP: numbers of 8 bytes. HTTP: XML envelopes through Node's own client and server.
"use strict";
const { spawn } = require("child_process");
const http = require("http");
const net = require("net");
const { conclude, option, report } = require("./measure.js");

const PATIENCE_MS = 10000;
const MASK = (1n << 64n) - 1n;

// Anything that only the server could have computed (SplitMix64's finaliser).
function method(argument) {
  let z = argument ^ 0x70696e67n;
  z = ((z ^ (z >> 30n)) * 0xbf58476d1ce4e5b9n) & MASK;
  z = ((z ^ (z >> 27n)) * 0x94d049bb133111ebn) & MASK;
  return z ^ (z >> 31n);
}

const envelope = (element, number) =>
  '<?xml version="1.0"?><soap:Envelope xmlns:soap="http://schemas.xmlsoap.org/soap/envelope/">' +
  `<soap:Body><${element}>${number}</${element}></soap:Body></soap:Envelope>`;
const numberIn = (text, element) => BigInt(text.match(new RegExp(`<${element}>(\\d+)</${element}>`))[1]);

function failed(error) {
  console.error(`ping: ${error.message}`);
  process.exit(2);
}

// Hands each whole message of eight bytes to `take`.
function inEights(socket, take) {
  let held = Buffer.alloc(0);
  socket.setNoDelay(true);
  socket.on("data", (data) => {
    held = Buffer.concat([held, data]);
    while (held.length >= 8) {
      const message = held.readBigUInt64LE(0);
      held = held.subarray(8);
      take(message);
    }
  });
}

function serve(protocol) {
  const server = protocol === "tcp" ? net.createServer() : http.createServer();
  const listening = () => console.log(server.address().port);
  if (protocol === "tcp") {
    server.on("connection", (socket) =>
      inEights(socket, (argument) => {
        const answer = Buffer.alloc(8);
        answer.writeBigUInt64LE(method(argument));
        socket.write(answer);
      }));
  } else {
    server.on("request", (request, response) => {
      let body = "";
      request.on("data", (data) => (body += data));
      request.on("end", () => {
        const answer = envelope("pingResponse", method(numberIn(body, "ping")));
        response.writeHead(200, { "Content-Type": "text/xml", "Content-Length": answer.length });
        response.end(answer);
      });
    });
  }
  server.on("connection", (socket) => socket.on("close", () => server.close()));
  server.listen(0, "127.0.0.1", listening);
}

function tcpClient(port) {
  return new Promise((resolve) => {
    const waiting = [];
    const socket = net.connect(port, "127.0.0.1", () => {
      inEights(socket, (answer) => waiting.shift()(answer));
      const call = (argument) =>
        new Promise((done) => {
          waiting.push(done);
          const message = Buffer.alloc(8);
          message.writeBigUInt64LE(argument);
          socket.write(message);
        });
      resolve([call, () => socket.end()]);
    });
    socket.setTimeout(PATIENCE_MS, () => failed(new Error("no answer")));
    socket.on("error", failed);
  });
}

function httpClient(port) {
  const agent = new http.Agent({ keepAlive: true, maxSockets: 1 });
  const call = (argument) =>
    new Promise((done) => {
      const body = envelope("ping", argument);
      const headers = { "Content-Type": "text/xml", "Content-Length": body.length };
      const request = http.request({ port, host: "127.0.0.1", path: "/ping", method: "POST", agent, headers }, (response) => {
        let answer = "";
        response.on("data", (data) => (answer += data));
        response.on("end", () => done(numberIn(answer, "pingResponse")));
      });
      request.setTimeout(PATIENCE_MS, () => failed(new Error("no answer")));
      request.on("error", failed);
      request.end(body);
    });
  return [call, () => agent.destroy()];
}

async function main() {
  const protocol = option("protocol", "tcp", ["tcp", "http"]);
  if (process.argv.includes("--serve")) return serve(protocol);
  // The server runs as the client does.
  const words = [...process.execArgv, __filename, "--serve", "--protocol", protocol];
  const server = spawn(process.execPath, words, { stdio: ["ignore", "pipe", "inherit"] });
  const ended = new Promise((resolve) => server.on("exit", resolve));
  const port = await new Promise((resolve) => server.stdout.once("data", (data) => resolve(parseInt(data, 10))));
  const [call, close] = await (protocol === "tcp" ? tcpClient(port) : httpClient(port));
  const calls = option("calls", 200);
  let right = 0;
  let checked = 0;
  for (let repetition = 0; repetition < option("repetitions", 10); repetition++) {
    const answers = [];
    const first = BigInt(repetition * calls);
    const start = process.hrtime.bigint();
    for (let number = 0; number < calls; number++) answers.push(await call(first + BigInt(number)));
    report("ping", Number(process.hrtime.bigint() - start) / calls);
    right += answers.filter((answer, number) => answer === method(first + BigInt(number))).length;
    checked += calls;
  }
  close();
  if ((await ended) !== 0) failed(new Error("the server failed"));
  conclude(right, checked);
}

main().catch(failed);

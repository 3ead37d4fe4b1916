//! Remote ping (ALLOC's TCP Ping and HTTP Ping, native): a client calls one method of a server in another process, both
//! ends on loopback. Each measurement is the mean time of a call in nanoseconds.

mod http;

use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use clap::ValueEnum;

use crate::measure::{Measurements, Proof};
use crate::rng::mix;

/// An end that receives nothing for this long gives up, instead of hanging.
const PATIENCE: Duration = Duration::from_secs(10);

/// Calls of a method in another process, over loopback
#[derive(clap::Args)]
pub struct Args {
    /// What the ends speak: length and binary numbers over TCP, or an XML envelope over HTTP
    #[arg(long, value_enum, default_value_t = Protocol::Tcp)]
    protocol: Protocol,
    /// Measurements
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..))]
    repetitions: u64,
    /// Calls in each measurement
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u64).range(1..))]
    calls: u64,
    /// Be the server: print the port, serve one client, end
    #[arg(long, hide = true)]
    serve: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Protocol {
    Tcp,
    Http,
}

/// A function that makes a call and waits for its answer.
type Client = Box<dyn FnMut(u64) -> Result<u64, String>>;

/// The method that is called. It mixes all bits of the argument, so that a wrong answer is noticed.
fn method(argument: u64) -> u64 {
    mix(argument ^ 0x70_69_6E_67)
}

/// Runs client and server; the proof adds up the answers and compares the sum with the method's results in this
/// process.
pub fn run(args: &Args, measurements: &mut Measurements) -> Result<Option<Proof>, String> {
    if args.serve {
        return serve(args.protocol).map(|()| None);
    }
    let (mut server, port) = start_server(args.protocol)?;
    let proof = call(args, port, measurements);
    // The client's end is closed now, which ends the server; after an error the server may wait for nothing.
    if proof.is_err() {
        let _ = server.kill();
    }
    let status = server.wait().map_err(|error| format!("cannot wait for the server: {error}"))?;
    if proof.is_ok() && !status.success() {
        return Err(format!("the server ended with {status}"));
    }
    proof.map(Some)
}

fn start_server(protocol: Protocol) -> Result<(Child, u16), String> {
    let own = std::env::current_exe().map_err(|error| format!("cannot find the own program: {error}"))?;
    let name = protocol.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default();
    let mut server = Command::new(own)
        .args(["ping", "--serve", "--protocol", &name])
        .env_remove("PAGELAB_MEASURE_FD")
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|error| format!("cannot start the server: {error}"))?;
    let mut line = String::new();
    if let Some(output) = server.stdout.take() {
        BufReader::new(output).read_line(&mut line).map_err(|error| format!("the server said nothing: {error}"))?;
    }
    match line.trim().parse() {
        Ok(port) => Ok((server, port)),
        Err(_) => {
            let _ = server.kill();
            let _ = server.wait();
            Err("the server did not start: its message is above".to_owned())
        }
    }
}

fn call(args: &Args, port: u16, measurements: &mut Measurements) -> Result<Proof, String> {
    let stream = TcpStream::connect(("127.0.0.1", port)).map_err(|error| format!("cannot connect: {error}"))?;
    ready(&stream)?;
    let mut client = match args.protocol {
        Protocol::Tcp => tcp_client(stream),
        Protocol::Http => http::client(stream)?,
    };
    let name = match args.protocol {
        Protocol::Tcp => "ping.tcp",
        Protocol::Http => "ping.http",
    };
    let (mut checksum, mut expected) = (0_u64, 0_u64);
    for repetition in 0..args.repetitions {
        let first = repetition * args.calls;
        let sum = measurements.time(name, args.calls, || {
            (first..first + args.calls)
                .try_fold(0_u64, |sum, argument| client(argument).map(|answer| sum.wrapping_add(answer)))
        })??;
        checksum = checksum.wrapping_add(sum);
        expected = (first..first + args.calls).fold(expected, |sum, argument| sum.wrapping_add(method(argument)));
    }
    measurements.end_window();
    Ok(Proof { checksum, expected })
}

/// Sets a stream's options: it does not wait for more data to send (a call would take 40 ms), and never waits for ever.
fn ready(stream: &TcpStream) -> Result<(), String> {
    stream
        .set_nodelay(true)
        .and_then(|()| stream.set_read_timeout(Some(PATIENCE)))
        .map_err(|error| format!("cannot set up the connection: {error}"))
}

/// The server's process: prints the port on which it listens, and serves one client to its end.
fn serve(protocol: Protocol) -> Result<(), String> {
    let listener = TcpListener::bind(("127.0.0.1", 0)).map_err(|error| format!("cannot listen: {error}"))?;
    let port = listener.local_addr().map_err(|error| format!("cannot tell the port: {error}"))?.port();
    println!("{port}");
    std::io::stdout().flush().map_err(|error| format!("cannot tell the port: {error}"))?;
    let (stream, _) = listener.accept().map_err(|error| format!("cannot accept: {error}"))?;
    ready(&stream)?;
    match protocol {
        Protocol::Tcp => serve_tcp(stream),
        Protocol::Http => http::serve(stream),
    }
}

/// A function that makes a call over plain TCP: the argument in 8 bytes, little-endian; so is the answer.
fn tcp_client(mut stream: TcpStream) -> Client {
    Box::new(move |argument| {
        let mut answer = [0; 8];
        stream
            .write_all(&argument.to_le_bytes())
            .and_then(|()| stream.read_exact(&mut answer))
            .map_err(|error| format!("cannot call: {error}"))?;
        Ok(u64::from_le_bytes(answer))
    })
}

/// Answers calls until the client closes its end.
fn serve_tcp(mut stream: TcpStream) -> Result<(), String> {
    let mut call = [0; 8];
    loop {
        match stream.read_exact(&mut call) {
            Ok(()) => {}
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Ok(()),
            Err(error) => return Err(format!("cannot read a call: {error}")),
        }
        let answer = method(u64::from_le_bytes(call));
        stream.write_all(&answer.to_le_bytes()).map_err(|error| format!("cannot answer: {error}"))?;
    }
}

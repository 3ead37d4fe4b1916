//! The server's process.

use std::io::Write;
use std::net::TcpListener;

use super::{Protocol, http, ready, tcp};

/// Prints the port it listens on, serves one client to its end.
pub fn serve(protocol: Protocol) -> Result<(), String> {
    let listener = TcpListener::bind(("127.0.0.1", 0)).map_err(|error| format!("cannot listen: {error}"))?;
    let port = listener.local_addr().map_err(|error| format!("cannot tell the port: {error}"))?.port();
    println!("{port}");
    std::io::stdout().flush().map_err(|error| format!("cannot tell the port: {error}"))?;
    let (stream, _) = listener.accept().map_err(|error| format!("cannot accept: {error}"))?;
    ready(&stream)?;
    match protocol {
        Protocol::Tcp => tcp::serve(stream),
        Protocol::Http => http::serve(stream),
    }
}

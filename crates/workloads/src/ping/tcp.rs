//! Plain TCP: a call is the argument in 8 bytes, little-endian; so is the answer.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;

use super::{Client, method};

/// A function that makes a call.
pub fn client(mut stream: TcpStream) -> Client {
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
pub fn serve(mut stream: TcpStream) -> Result<(), String> {
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

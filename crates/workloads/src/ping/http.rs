//! HTTP/1.1 over one kept connection: a call is a POST with an XML envelope (ALLOC's HTTP Ping uses SOAP), and the
//! answer is also an envelope. It reads only what its own two ends write: a start line, headers with a length, a body.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;

use super::{Client, method};

/// Bound of lines and bodies, in bytes; its own ends send no longer ones.
const LIMIT: usize = 64 * 1024;

/// A function that makes a call.
pub fn client(stream: TcpStream) -> Result<Client, String> {
    let mut writer = stream.try_clone().map_err(|error| format!("cannot share the connection: {error}"))?;
    let mut reader = BufReader::new(stream);
    Ok(Box::new(move |argument| {
        let body = envelope("ping", argument);
        send(&mut writer, "POST /ping HTTP/1.1\r\nHost: localhost", &body)?;
        let (start, body) = receive(&mut reader)?.ok_or("the server closed the connection")?;
        if !start.starts_with("HTTP/1.1 200 ") {
            return Err(format!("the server answered {start}"));
        }
        number(&body, "pingResponse")
    }))
}

/// Answers calls until the client closes its end.
pub fn serve(stream: TcpStream) -> Result<(), String> {
    let mut writer = stream.try_clone().map_err(|error| format!("cannot share the connection: {error}"))?;
    let mut reader = BufReader::new(stream);
    while let Some((start, body)) = receive(&mut reader)? {
        if start != "POST /ping HTTP/1.1" {
            send(&mut writer, "HTTP/1.1 404 Not Found", "")?;
            continue;
        }
        let answer = method(number(&body, "ping")?);
        send(&mut writer, "HTTP/1.1 200 OK", &envelope("pingResponse", answer))?;
    }
    Ok(())
}

fn envelope(element: &str, number: u64) -> String {
    format!(
        "<?xml version=\"1.0\"?><soap:Envelope xmlns:soap=\"http://schemas.xmlsoap.org/soap/envelope/\">\
         <soap:Body><{element}>{number}</{element}></soap:Body></soap:Envelope>"
    )
}

/// The number between the tags of `element`.
fn number(body: &str, element: &str) -> Result<u64, String> {
    let (_, rest) = body.split_once(&format!("<{element}>")).ok_or_else(|| format!("no {element} in {body:?}"))?;
    let (number, _) = rest.split_once(&format!("</{element}>")).ok_or_else(|| format!("no end in {body:?}"))?;
    number.parse().map_err(|_| format!("no number in {body:?}"))
}

fn send(writer: &mut TcpStream, start: &str, body: &str) -> Result<(), String> {
    let message =
        format!("{start}\r\nContent-Type: text/xml; charset=utf-8\r\nContent-Length: {}\r\n\r\n{body}", body.len());
    writer.write_all(message.as_bytes()).map_err(|error| format!("cannot send: {error}"))
}

/// The start line and the body of the next message; None at the end of the connection.
fn receive(reader: &mut impl BufRead) -> Result<Option<(String, String)>, String> {
    let Some(start) = line(reader)? else { return Ok(None) };
    let mut length = 0;
    loop {
        let header = line(reader)?.ok_or("the connection ended inside a message")?;
        if header.is_empty() {
            break;
        }
        if let Some((name, value)) = header.split_once(':')
            && name.eq_ignore_ascii_case("content-length")
        {
            let bytes = value.trim().parse().ok().filter(|&bytes| bytes <= LIMIT);
            length = bytes.ok_or_else(|| format!("bad header {header:?}"))?;
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).map_err(|error| format!("cannot read a body: {error}"))?;
    let body = String::from_utf8(body).map_err(|_| "a body that is not UTF-8".to_owned())?;
    Ok(Some((start, body)))
}

fn line(reader: &mut impl BufRead) -> Result<Option<String>, String> {
    let mut bytes = Vec::new();
    let mut limited = reader.by_ref().take(LIMIT as u64);
    let count = limited.read_until(b'\n', &mut bytes).map_err(|error| format!("cannot read a line: {error}"))?;
    if count == 0 {
        return Ok(None);
    }
    let text = String::from_utf8(bytes).map_err(|_| "a line that is not UTF-8".to_owned())?;
    text.strip_suffix("\r\n")
        .map(|line| Some(line.to_owned()))
        .ok_or_else(|| format!("a line without end: {text:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_read_back_one_after_the_other() {
        let text = "POST /ping HTTP/1.1\r\nHost: x\r\ncontent-length: 5\r\n\r\nhelloHTTP/1.1 200 OK\r\n\r\n";
        let mut reader = text.as_bytes();
        let first = receive(&mut reader).expect("whole").expect("a message");
        assert_eq!(first, ("POST /ping HTTP/1.1".to_owned(), "hello".to_owned()));
        assert_eq!(receive(&mut reader).expect("whole").expect("a message").1, "");
        assert_eq!(receive(&mut reader), Ok(None));
    }

    #[test]
    fn torn_and_absurd_messages_are_errors() {
        for text in
            ["POST", "POST / HTTP/1.1\r\n", "A\r\nContent-Length: 9\r\n\r\nx", "A\r\nContent-Length: -1\r\n\r\n"]
        {
            assert!(receive(&mut text.as_bytes()).is_err(), "{text:?}");
        }
        assert_eq!(number(&envelope("ping", u64::MAX), "ping"), Ok(u64::MAX));
        for body in ["", "<ping>", "<ping>x</ping>", "<ping>-1</ping>"] {
            assert!(number(body, "ping").is_err(), "{body:?}");
        }
    }
}

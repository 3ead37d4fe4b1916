//! Reading the request.

pub use pagelab_contract::request::*;

use crate::error::{Error, Result};

/// Reads a request and checks what can be checked without touching the machine.
pub fn parse(text: &[u8]) -> Result<Request> {
    let request: Request = serde_json::from_slice(text)
        .map_err(|error| Error::BadInput(format!("the request is not a {SCHEMA} document: {error}")))?;
    check(&request)?;
    Ok(request)
}

fn check(request: &Request) -> Result<()> {
    let bad = |message: String| Err(Error::BadInput(message));
    if request.schema != SCHEMA {
        return bad(format!("the request's schema is {:?}; this launcher reads {SCHEMA:?}", request.schema));
    }
    if request.argv.first().is_none_or(String::is_empty) {
        return bad("the request names no program (argv is empty)".to_owned());
    }
    let strings = request.argv.iter().chain(request.env.set.keys()).chain(request.env.set.values());
    if let Some(string) = strings.chain(&request.env.unset).find(|string| string.contains('\0')) {
        return bad(format!("{string:?} contains a NUL byte"));
    }
    if let Some(name) = request.env.set.keys().find(|name| name.is_empty() || name.contains('=')) {
        return bad(format!("{name:?} is not a name for an environment variable"));
    }
    if let Some(timeout) = request.timeout_s
        && !(timeout > 0.0 && timeout < 1e9)
    {
        return bad(format!("a timeout of {timeout} s is not a positive number of seconds below 1e9"));
    }
    if let Some(fd) = request.measurements.fd
        && !(3..=255).contains(&fd)
    {
        return bad(format!("measurement descriptor {fd} is not between 3 and 255"));
    }
    if let Some(fd) = request.announce_fd
        && fd < 3
    {
        return bad(format!("announce_fd = {fd} is a standard stream"));
    }
    if (request.flush.mode == FlushMode::Files) == request.flush.files.is_empty() {
        return bad("flush.files must name files exactly when flush.mode is \"files\"".to_owned());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(extra: &str) -> Result<Request> {
        super::parse(format!(r#"{{"schema":"pagelab.request/1","argv":["true"]{extra}}}"#).as_bytes())
    }

    #[test]
    fn the_shortest_request_has_the_documented_defaults() {
        let request = parse("").expect("valid");
        assert_eq!(request.preload, Preload::Auto);
        assert_eq!((request.stdin.as_str(), request.stdout.as_str()), ("null", "inherit"));
        assert_eq!(request.flush.mode, FlushMode::None);
        assert!(request.control_readahead && request.per_process_counters);
    }

    #[test]
    fn bad_requests_are_refused_with_the_offending_value() {
        for (extra, expected) in [
            (r#","timeout_s":0"#, "timeout of 0"),
            (r#","timeout_s":-1"#, "timeout of -1"),
            (r#","measurements":{"fd":1}"#, "descriptor 1"),
            (r#","announce_fd":2"#, "announce_fd = 2"),
            (r#","flush":{"mode":"files"}"#, "flush.files"),
            (r#","env":{"set":{"A=B":"c"}}"#, "A=B"),
            (r#","nonsense":1"#, "nonsense"),
            (r#","preload":"maybe""#, "maybe"),
            (r#","scheduler":"rr""#, "rr"),
        ] {
            let message = parse(extra).expect_err(extra).to_string();
            assert!(message.contains(expected), "{extra}: {message}");
        }
        assert!(super::parse(br#"{"schema":"pagelab.request/2","argv":["x"]}"#).is_err());
        assert!(super::parse(br#"{"schema":"pagelab.request/1","argv":[]}"#).is_err());
        assert!(super::parse(b"").is_err());
    }
}

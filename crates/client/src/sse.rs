//! Server-sent events: lines in, messages out.
//!
//! Spec: WHATWG HTML, section 9.2.6, as far as the daemon uses it: `event`, `data`, and comments.

/// A message that is complete.
#[derive(Debug, Eq, PartialEq)]
pub(crate) struct Frame {
    /// Its kind; empty when none was named.
    pub(crate) kind: String,
    /// Its data.
    pub(crate) data: String,
}

/// More bytes in one message than may be.
#[derive(Debug, Eq, PartialEq)]
pub(crate) struct TooLong;

/// Cuts a stream into messages.
#[derive(Debug)]
pub(crate) struct Parser {
    /// Bytes that are not yet whole lines begin at `at`.
    pending: Vec<u8>,
    at: usize,
    kind: String,
    data: String,
    bytes_max: usize,
}

impl Parser {
    /// With this limit for a message and for what waits for its end.
    pub(crate) fn new(bytes_max: usize) -> Self {
        Self {
            pending: Vec::new(),
            at: 0,
            kind: String::new(),
            data: String::new(),
            bytes_max,
        }
    }

    /// Takes bytes of the stream.
    pub(crate) fn feed(&mut self, bytes: &[u8]) -> Result<(), TooLong> {
        self.pending.drain(..self.at);
        self.at = 0;
        let held = self.pending.len() + self.data.len() + self.kind.len();
        if held + bytes.len() > self.bytes_max {
            return Err(TooLong);
        }
        self.pending.extend_from_slice(bytes);
        Ok(())
    }

    /// The next message that is complete.
    pub(crate) fn next(&mut self) -> Option<Frame> {
        loop {
            let rest = self.pending.get(self.at..)?;
            let length = rest.iter().position(|byte| *byte == b'\n')?;
            let line = String::from_utf8_lossy(rest.get(..length)?).into_owned();
            self.at += length + 1;
            let line = line.strip_suffix('\r').unwrap_or(&line);
            if line.is_empty() {
                if let Some(frame) = self.take() {
                    return Some(frame);
                }
            } else {
                self.field(line);
            }
        }
    }

    fn field(&mut self, line: &str) {
        let (name, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match name {
            "event" => value.clone_into(&mut self.kind),
            "data" => {
                if !self.data.is_empty() {
                    self.data.push('\n');
                }
                self.data.push_str(value);
            }
            // Comments, and fields for browsers, are to be ignored.
            _ => {}
        }
    }

    fn take(&mut self) -> Option<Frame> {
        let frame = Frame {
            kind: std::mem::take(&mut self.kind),
            data: std::mem::take(&mut self.data),
        };
        (!frame.data.is_empty()).then_some(frame)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(kind: &str, data: &str) -> Frame {
        Frame {
            kind: kind.to_owned(),
            data: data.to_owned(),
        }
    }

    #[test]
    fn messages_are_the_same_however_the_stream_is_cut() {
        let text =
            b": hello\r\n\r\nevent: stats\ndata: {1}\n\nid: 7\nevent: event\ndata:a\ndata: b\n\n";
        for cut in 1..text.len() {
            let mut parser = Parser::new(1024);
            let mut got = Vec::new();
            for piece in text.chunks(cut) {
                parser.feed(piece).unwrap();
                got.extend(std::iter::from_fn(|| parser.next()));
            }
            assert_eq!(
                got,
                [frame("stats", "{1}"), frame("event", "a\nb")],
                "{cut}"
            );
        }
    }

    #[test]
    fn what_waits_for_its_end_has_a_limit() {
        let mut parser = Parser::new(16);
        assert_eq!(parser.feed(&[b'x'; 16]), Ok(()));
        assert_eq!(parser.feed(b"x"), Err(TooLong));

        let mut parser = Parser::new(16);
        for _ in 0..2 {
            parser.feed(b"data: 123\n").unwrap();
            assert_eq!(parser.next(), None);
        }
        assert_eq!(parser.feed(b"data: 123\n"), Err(TooLong));
    }
}

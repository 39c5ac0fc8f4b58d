//! The header of a frame.

use crate::{Error, HEADER, Result};

/// What a client sends first; no HTTP request begins like it.
pub const PREFACE: [u8; 8] = *b"\x8bGMILL\r\n";

/// The longest parts of a frame that a receiver takes.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Bytes of a head.
    pub head: u32,
    /// Bytes of a body.
    pub body: u64,
}

impl Limits {
    /// What a server accepts from somebody whom it does not know yet: a `HELLO` with the longest token.
    pub const GREETING: Self = Self { head: 4 << 10, body: 0 };
    /// What a server accepts.
    pub const SERVER: Self = Self { head: 1 << 20, body: 256 << 20 };
    /// What a client accepts unless told otherwise.
    pub const CLIENT: Self = Self { head: 1 << 20, body: 4 << 30 };
}

/// What a frame is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
#[allow(missing_docs, reason = "docs/wire.md has a line for each")]
pub enum Kind {
    Hello = 1,
    Welcome = 2,
    Refused = 3,
    Credit = 4,
    Batch = 5,
    Failed = 6,
    Lost = 7,
    Slot = 8,
    Return = 9,
    Ask = 10,
    Answer = 11,
    Gather = 12,
    Rows = 13,
    Ping = 14,
    Pong = 15,
    Read = 16,
    Reading = 17,
    Put = 18,
    Get = 19,
    Object = 20,
    Has = 21,
    Evict = 22,
    Done = 23,
    Reserve = 24,
    List = 25,
    Listing = 26,
    Stop = 27,
}

impl Kind {
    /// Every kind, in the order of their numbers.
    pub const ALL: [Self; 27] = [
        Self::Hello,
        Self::Welcome,
        Self::Refused,
        Self::Credit,
        Self::Batch,
        Self::Failed,
        Self::Lost,
        Self::Slot,
        Self::Return,
        Self::Ask,
        Self::Answer,
        Self::Gather,
        Self::Rows,
        Self::Ping,
        Self::Pong,
        Self::Read,
        Self::Reading,
        Self::Put,
        Self::Get,
        Self::Object,
        Self::Has,
        Self::Evict,
        Self::Done,
        Self::Reserve,
        Self::List,
        Self::Listing,
        Self::Stop,
    ];

    fn from_number(number: u8) -> Result<Self> {
        let place = usize::from(number).checked_sub(1);
        place.and_then(|place| Self::ALL.get(place)).copied().ok_or(Error::Kind(number))
    }
}

/// The first 48 bytes of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// The wire version.
    pub version: u8,
    /// What it is.
    pub kind: Kind,
    /// Bytes of the head.
    pub head: u32,
    /// Bytes of the body.
    pub body: u64,
    /// The question's number.
    pub request: u64,
    /// The channel.
    pub channel: u64,
    /// The epoch.
    pub epoch: u64,
    /// The batch's number in its epoch.
    pub g: u64,
}

impl Header {
    /// A header of this version, about nothing in particular, of a frame without head and body.
    pub const fn new(kind: Kind) -> Self {
        Self { version: crate::VERSION, kind, head: 0, body: 0, request: 0, channel: 0, epoch: 0, g: 0 }
    }

    /// Its bytes.
    pub fn encode(&self) -> [u8; HEADER] {
        let mut bytes = [0; HEADER];
        bytes[0] = self.version;
        bytes[1] = self.kind as u8;
        bytes[4..8].copy_from_slice(&self.head.to_le_bytes());
        let words = [self.body, self.request, self.channel, self.epoch, self.g];
        for (to, word) in bytes[8..].chunks_exact_mut(8).zip(words) {
            to.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    /// Reads a header of an agreed version, and checks its lengths.
    ///
    /// # Errors
    /// When it is not a header of that version, or announces more than the limits allow.
    pub fn decode(bytes: &[u8; HEADER], version: u8, limits: Limits) -> Result<Self> {
        let [found, kind, reserved @ ..] = [bytes[0], bytes[1], bytes[2], bytes[3]];
        if found != version {
            return Err(Error::Version { found, expected: version });
        }
        let kind = Kind::from_number(kind)?;
        if reserved != [0, 0] {
            return Err(Error::Reserved);
        }
        let (words, _) = bytes[8..].as_chunks::<8>();
        let word = |place: usize| u64::from_le_bytes(words[place]);
        let head = u32::from_le_bytes([bytes[4], bytes[5], bytes[6], bytes[7]]);
        let body = word(0);
        if head > limits.head {
            return Err(Error::TooLong { part: "head", bytes: head.into(), limit: limits.head.into() });
        }
        if body > limits.body {
            return Err(Error::TooLong { part: "body", bytes: body, limit: limits.body });
        }
        Ok(Self { version, kind, head, body, request: word(1), channel: word(2), epoch: word(3), g: word(4) })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn what_is_encoded_is_decoded(
            kind in proptest::sample::select(&Kind::ALL[..]), head in 0u32..=1 << 20, body in 0u64..=256 << 20,
            words: [u64; 4],
        ) {
            let [request, channel, epoch, g] = words;
            let header = Header { version: 1, kind, head, body, request, channel, epoch, g };
            prop_assert_eq!(Header::decode(&header.encode(), 1, Limits::SERVER).unwrap(), header);
        }

        #[test]
        fn no_bytes_make_it_panic_or_pass_a_limit(bytes: [u8; 32], more: [u8; 16]) {
            let mut all = [0; HEADER];
            all[..32].copy_from_slice(&bytes);
            all[32..].copy_from_slice(&more);
            if let Ok(header) = Header::decode(&all, 1, Limits::SERVER) {
                prop_assert!(header.body <= Limits::SERVER.body && header.head <= Limits::SERVER.head);
                prop_assert_eq!(header.encode(), all);
            }
        }
    }

    #[test]
    fn the_bytes_are_those_of_the_page() {
        let header =
            Header { head: 0x0102, body: 3, request: 4, channel: 5, epoch: 6, g: 7, ..Header::new(Kind::Batch) };
        let mut expected = vec![1, 5, 0, 0, 0x02, 0x01, 0, 0];
        for word in 3u8..8 {
            expected.extend([word, 0, 0, 0, 0, 0, 0, 0]);
        }
        assert_eq!(header.encode().as_slice(), expected);
    }

    #[test]
    fn refusals_name_what_was_found() {
        let refused = |change: fn(&mut [u8; HEADER])| {
            let mut bytes = Header::new(Kind::Ping).encode();
            change(&mut bytes);
            Header::decode(&bytes, 1, Limits::SERVER).unwrap_err().to_string()
        };
        assert!(refused(|bytes| bytes[0] = 9).contains("wire version 9"));
        assert!(refused(|bytes| bytes[1] = 0).contains("kind 0"));
        assert!(refused(|bytes| bytes[1] = 77).contains("kind 77"));
        assert!(refused(|bytes| bytes[3] = 1).contains("reserved"));
        assert!(refused(|bytes| bytes[7] = 1).contains("head has 16777216 bytes"));
        assert!(refused(|bytes| bytes[15] = 1).contains("accepted are 268435456"));
    }
}

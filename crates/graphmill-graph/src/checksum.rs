//! Checksums of arrays and of the manifest: XXH3-64.

use xxhash_rust::xxh3::{Xxh3, xxh3_64};

/// The checksum of whole bytes.
pub(crate) fn checksum(bytes: &[u8]) -> u64 {
    xxh3_64(bytes)
}

/// A checksum that grows as bytes are written or arrive.
#[derive(Default)]
pub struct Checksummer(Xxh3);

impl Checksummer {
    /// Takes in the bytes that follow.
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// The checksum of all bytes so far.
    pub fn value(&self) -> u64 {
        self.0.digest()
    }
}

/// Serialises a checksum as 16 lower-case hex digits.
pub(crate) mod hex {
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks for this signature")]
    pub(crate) fn serialize<S: Serializer>(value: &u64, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&format!("{value:016x}"))
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
        let text = String::deserialize(deserializer)?;
        parse(&text).ok_or_else(|| D::Error::custom("a checksum is 16 lower-case hex digits"))
    }

    pub(crate) fn parse(text: &str) -> Option<u64> {
        let digits = text.len() == 16 && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
        digits.then(|| u64::from_str_radix(text, 16).ok()).flatten()
    }
}

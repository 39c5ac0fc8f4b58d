//! The shared secret of a cluster.

use std::fmt;
use std::path::Path;

use subtle::ConstantTimeEq as _;

use crate::{Error, Result, read_secret};

/// The longest token: a greeting has room for no more.
const LONGEST: usize = 2048;

/// A secret text that whoever connects must know. It is never shown.
#[derive(Clone)]
pub struct Token(String);

impl Token {
    /// A token that may travel in an HTTP header.
    ///
    /// # Errors
    /// When it is empty or longer than 2,048 characters, or has characters other than printable ASCII without spaces.
    pub fn new(text: impl Into<String>) -> Result<Self> {
        let text = text.into();
        if text.is_empty() {
            return Err(Error::Token("it is empty"));
        }
        if text.len() > LONGEST {
            return Err(Error::Token("it has more than 2048 characters"));
        }
        if !text.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(Error::Token("it has characters other than printable ASCII without spaces"));
        }
        Ok(Self(text))
    }

    /// Reads a file that holds a token and perhaps a line end.
    ///
    /// # Errors
    /// When the file cannot be read, others can read it too, or what it holds is no token.
    pub fn from_file(path: &Path) -> Result<Self> {
        let text = String::from_utf8(read_secret(path)?).map_err(|_| Error::file(path, "it is not a text"))?;
        let line = text.strip_suffix('\n').unwrap_or(&text);
        Self::new(line.strip_suffix('\r').unwrap_or(line)).map_err(|error| Error::file(path, &error))
    }

    /// Whether another text is this token. How long that takes tells nothing about where they differ.
    pub fn matches(&self, other: &str) -> bool {
        self.0.as_bytes().ct_eq(other.as_bytes()).into()
    }

    /// The text itself, to be sent.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_same_text_matches() {
        let token = Token::new("open-sesame").unwrap();
        assert!(token.matches("open-sesame"));
        for other in ["", "open-sesamE", "open-sesam", "open-sesame ", "pen-sesame"] {
            assert!(!token.matches(other), "{other}");
        }
    }

    #[test]
    fn a_text_that_a_greeting_has_no_room_for_is_no_token() {
        assert!(Token::new("x".repeat(LONGEST)).is_ok());
        assert!(Token::new("x".repeat(LONGEST + 1)).unwrap_err().to_string().contains("2048"));
    }

    #[test]
    fn nothing_shows_it() {
        let token = Token::new("open-sesame").unwrap();
        assert!(!format!("{token:?} {token:#?}").contains("sesame"));
        let error = Token::new("open sesame").unwrap_err();
        assert!(!format!("{error} {error:?}").contains("sesame"));
    }

    #[test]
    fn one_line_end_of_a_file_is_not_part_of_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("token");
        for (content, token) in
            [("abc", true), ("abc\n", true), ("abc\r\n", true), ("abc\n\n", false), ("\n", false), ("", false)]
        {
            std::fs::write(&path, content).unwrap();
            std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
            let found = Token::from_file(&path);
            assert_eq!(found.as_ref().is_ok_and(|found| found.matches("abc")), token, "{content:?}");
            if let Err(error) = found {
                assert!(error.to_string().contains(path.to_str().unwrap()), "{error}");
            }
        }
    }
}

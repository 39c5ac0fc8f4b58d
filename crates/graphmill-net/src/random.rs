//! Numbers that nobody else draws.

use rustix::io::Errno;
use rustix::rand::{GetRandomFlags, getrandom};

/// Eight bytes of the system's randomness. Nothing is kept between two calls: what a process keeps a forked child has too,
/// and both would go on to draw the same.
///
/// # Panics
/// Where the system has no randomness at all.
pub fn random() -> u64 {
    let mut bytes = [0; 8];
    loop {
        match getrandom(&mut bytes[..], GetRandomFlags::empty()) {
            Ok(8) => return u64::from_le_bytes(bytes),
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => panic!("the system has no randomness: {error}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_numbers_are_the_same() {
        let drawn: std::collections::HashSet<u64> = (0..1000).map(|_| random()).collect();
        assert_eq!(drawn.len(), 1000);
    }
}

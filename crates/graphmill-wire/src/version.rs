//! Which wire version two members speak with each other.

use crate::{Error, Result};

/// The wire version that this build speaks.
pub const VERSION: u8 = 1;
/// The oldest that it speaks: the one before its own, if there was one.
pub const OLDEST: u8 = if VERSION > GREETING { VERSION - 1 } else { GREETING };
/// The version of the frames of a handshake, which stay as they are in all versions: before it nothing is agreed on.
pub const GREETING: u8 = 1;

/// The newest version that both sides speak, each of which names the oldest and the newest it does.
pub fn agree(ours: (u8, u8), theirs: (u32, u32)) -> Option<u8> {
    let newest = u8::try_from(theirs.1).map_or(ours.1, |newest| newest.min(ours.1));
    (newest >= ours.0 && u32::from(newest) >= theirs.0).then_some(newest)
}

/// The version that a server chose.
///
/// # Errors
/// When it was not offered.
pub fn chosen(wire: u32) -> Result<u8> {
    let offered = u8::try_from(wire).ok().filter(|wire| (OLDEST..=VERSION).contains(wire));
    offered.ok_or(Error::Chosen { found: wire, oldest: OLDEST, newest: VERSION })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn range() -> impl Strategy<Value = (u8, u8)> {
        (1u8..=255, 0u8..4).prop_map(|(oldest, more)| (oldest, oldest.saturating_add(more)))
    }

    proptest! {
        #[test]
        fn the_newest_common_version_is_spoken_whoever_asks(ours in range(), theirs in range()) {
            let wide = |(oldest, newest): (u8, u8)| (u32::from(oldest), u32::from(newest));
            let common = (ours.0..=ours.1).filter(|version| (theirs.0..=theirs.1).contains(version)).max();
            prop_assert_eq!(agree(ours, wide(theirs)), common);
            prop_assert_eq!(agree(theirs, wide(ours)), common);
        }

        #[test]
        fn whatever_is_offered_nothing_else_is_chosen(ours in range(), oldest: u32, newest: u32) {
            let spoken = |version: u8| (oldest..=newest).contains(&u32::from(version)) && (ours.0..=ours.1).contains(&version);
            prop_assert_eq!(agree(ours, (oldest, newest)), (ours.0..=ours.1).rev().find(|&version| spoken(version)));
        }
    }

    #[test]
    fn a_release_speaks_its_own_version_and_the_one_before() {
        assert_eq!((OLDEST, VERSION - OLDEST), if VERSION == 1 { (1, 0) } else { (VERSION - 1, 1) });
        assert_eq!(agree((2, 3), (1, 2)), Some(2), "an older client");
        assert_eq!(agree((1, 2), (2, 3)), Some(2), "an older server");
        assert_eq!(agree((3, 4), (1, 2)), None);
        assert!(chosen(u32::from(VERSION) + 1).unwrap_err().to_string().contains("chose wire version"));
    }
}

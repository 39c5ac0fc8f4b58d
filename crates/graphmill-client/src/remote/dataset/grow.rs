//! Lists that come in parts: never longer than they can be, and an error where there is no memory for them.

use graphmill_wire::proto::OriginalId;
use graphmill_wire::proto::original_id::Id;

use crate::{Error, Result};

/// Bytes that the names of nodes in one answer may have.
const NAMES: u64 = 1 << 30;

/// Adds a part to a list that has at most so many elements in all. Says how many bytes were added.
pub(super) fn grow<T>(list: &mut Vec<T>, part: Vec<T>, what: &'static str, most: u64) -> Result<u64> {
    let found = list.len() as u64 + part.len() as u64;
    if found > most {
        return Err(too_many(what, most));
    }
    list.try_reserve(part.len()).map_err(|_| graphmill_sample::Error::Memory { what, count: found })?;
    let bytes = size_of_val(&part[..]) as u64;
    list.extend(part);
    Ok(bytes)
}

/// The same for names of nodes, which may be long.
pub(super) fn grow_names((list, bytes): &mut (Vec<OriginalId>, u64), part: Vec<OriginalId>, most: u64) -> Result<u64> {
    let text = |original: &OriginalId| if let Some(Id::Text(text)) = &original.id { text.len() as u64 } else { 0 };
    let added: u64 = part.iter().map(text).sum();
    *bytes = bytes.saturating_add(added);
    if *bytes > NAMES {
        return Err(too_many("bytes of original ids", NAMES));
    }
    Ok(added + grow(list, part, "original ids", most)?)
}

pub(super) fn too_many(what: &str, most: u64) -> Error {
    Error::request(format!("a server sent more than the {most} {what} that there can be; it is broken, or another's"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_grows_to_its_bound_and_no_further() {
        let mut list = Vec::new();
        assert_eq!(grow(&mut list, vec![1u64, 2], "ids", 3).unwrap(), 16);
        assert_eq!(grow(&mut list, vec![3], "ids", 3).unwrap(), 8);
        assert!(grow(&mut list, vec![4], "ids", 3).unwrap_err().to_string().contains("more than the 3 ids"));
        assert_eq!(list, [1, 2, 3]);
    }

    #[test]
    fn names_are_bounded_in_bytes_too() {
        let mut names = (Vec::new(), NAMES - 1);
        let name = |text: &str| vec![OriginalId { id: Some(Id::Text(text.to_owned())) }];
        grow_names(&mut names, name("a"), 9).unwrap();
        assert!(grow_names(&mut names, name("b"), 9).unwrap_err().to_string().contains("bytes of original ids"));
    }
}

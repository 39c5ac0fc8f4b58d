//! Memory for as many elements as a dataset or a user says: there may be none.

use crate::{Error, Result};

/// An empty list with room for so many.
///
/// # Errors
/// When there is no memory for them.
pub fn room<T>(what: &'static str, count: u64) -> Result<Vec<T>> {
    let mut list = Vec::new();
    make_room(&mut list, what, count)?;
    Ok(list)
}

/// Makes room for so many more.
///
/// # Errors
/// When there is no memory for them.
pub fn make_room<T>(list: &mut Vec<T>, what: &'static str, count: u64) -> Result<()> {
    let reserved = usize::try_from(count).is_ok_and(|count| list.try_reserve_exact(count).is_ok());
    if reserved { Ok(()) } else { Err(none(what, list.len(), count as usize)) }
}

/// Makes room for so many more in a list that grows again and again.
///
/// # Errors
/// When there is no memory for them.
#[inline]
pub fn grow<T>(list: &mut Vec<T>, what: &'static str, more: usize) -> Result<()> {
    if list.capacity() - list.len() >= more { Ok(()) } else { grow_now(list, what, more) }
}

#[cold]
fn grow_now<T>(list: &mut Vec<T>, what: &'static str, more: usize) -> Result<()> {
    list.try_reserve(more).map_err(|_| none(what, list.len(), more))
}

#[cold]
fn none(what: &'static str, len: usize, more: usize) -> Error {
    Error::Memory { what, count: len.saturating_add(more) as u64 }
}

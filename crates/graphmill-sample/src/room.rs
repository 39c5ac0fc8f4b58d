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
    if reserved { Ok(()) } else { Err(Error::Memory { what, count }) }
}

//! The key-value store of a round.

use std::collections::BTreeMap;

/// The longest key.
const LONGEST_KEY: usize = 1 << 10;
/// The bytes of all keys and values of a round.
const MOST_BYTES: usize = 1 << 20;

/// The values of a round.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Values {
    values: BTreeMap<String, Vec<u8>>,
    bytes: usize,
}

/// Why an operation cannot be done.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ValueError {
    /// There is no such key.
    #[error("there is no key `{0}`")]
    Missing(String),
    /// Something that is no number cannot be added to.
    #[error("the value of `{0}` is no number, so nothing can be added to it")]
    NotANumber(String),
    /// A key is not one.
    #[error("a key has {0} bytes; 1 to {LONGEST_KEY} are possible")]
    Key(usize),
    /// There is no room.
    #[error("the store of a round holds {MOST_BYTES} bytes, keys included; {0} were to be in it")]
    Full(usize),
}

impl Values {
    /// Sets a key.
    ///
    /// # Errors
    /// When there is no room for it.
    pub fn set(&mut self, key: &str, value: Vec<u8>) -> Result<(), ValueError> {
        self.set_all(vec![(key.to_owned(), value)])
    }

    /// Sets keys, all or none.
    ///
    /// # Errors
    /// When there is no room for them.
    pub fn set_all(&mut self, entries: Vec<(String, Vec<u8>)>) -> Result<(), ValueError> {
        let lengths = entries.iter().map(|(key, value)| (key.as_str(), value.len())).collect();
        self.bytes = self.bytes_with(&lengths)?;
        self.values.extend(entries);
        Ok(())
    }

    /// The bytes of all keys and values, when values have these lengths.
    fn bytes_with(&self, lengths: &BTreeMap<&str, usize>) -> Result<usize, ValueError> {
        let mut bytes = self.bytes;
        for (&key, length) in lengths {
            if key.is_empty() || key.len() > LONGEST_KEY {
                return Err(ValueError::Key(key.len()));
            }
            bytes -= self.get(key).map_or(0, |value| key.len() + value.len());
            bytes += key.len() + length;
        }
        if bytes > MOST_BYTES { Err(ValueError::Full(bytes)) } else { Ok(bytes) }
    }

    /// The value of a key.
    pub fn get(&self, key: &str) -> Option<&[u8]> {
        self.values.get(key).map(Vec::as_slice)
    }

    /// Whether all keys are there.
    pub fn has_all<'a>(&self, keys: impl IntoIterator<Item = &'a String>) -> bool {
        keys.into_iter().all(|key| self.values.contains_key(key))
    }

    /// Adds to the number of a key, which is made if it is missing, and tells the sum.
    ///
    /// # Errors
    /// When the value is no number, or there is no room.
    pub fn add(&mut self, key: &str, amount: i64) -> Result<i64, ValueError> {
        let not_a_number = || ValueError::NotANumber(key.to_owned());
        let before = match self.get(key) {
            None => 0,
            Some(value) => {
                let text = std::str::from_utf8(value).map_err(|_| not_a_number())?;
                text.parse::<i64>().map_err(|_| not_a_number())?
            }
        };
        let sum = before.checked_add(amount).ok_or_else(not_a_number)?;
        self.set(key, sum.to_string().into_bytes())?;
        Ok(sum)
    }

    /// Sets a key if it has the expected value; nothing is expected of a key that is to be made. Tells whether it was set.
    ///
    /// # Errors
    /// When something is expected of a key that is missing, or there is no room.
    pub fn compare_set(&mut self, key: &str, expected: &[u8], value: Vec<u8>) -> Result<bool, ValueError> {
        match self.get(key) {
            None if !expected.is_empty() => return Err(ValueError::Missing(key.to_owned())),
            Some(found) if found != expected => return Ok(false),
            _ => {}
        }
        self.set(key, value)?;
        Ok(true)
    }

    /// Removes a key; whether it was there.
    pub fn delete(&mut self, key: &str) -> bool {
        let removed = self.values.remove(key);
        self.bytes -= removed.as_ref().map_or(0, |value| key.len() + value.len());
        removed.is_some()
    }

    /// Appends to the values of keys, which are made if they are missing: to all or none.
    ///
    /// # Errors
    /// When there is no room.
    pub fn append(&mut self, entries: &[(String, Vec<u8>)]) -> Result<(), ValueError> {
        let mut lengths = BTreeMap::new();
        for (key, more) in entries {
            *lengths.entry(key.as_str()).or_insert_with(|| self.get(key).map_or(0, <[u8]>::len)) += more.len();
        }
        self.bytes = self.bytes_with(&lengths)?;
        for (key, more) in entries {
            self.values.entry(key.clone()).or_default().extend_from_slice(more);
        }
        Ok(())
    }

    /// How many keys begin so.
    pub fn count(&self, prefix: &str) -> usize {
        self.values.range(prefix.to_owned()..).take_while(|(key, _)| key.starts_with(prefix)).count()
    }

    /// All keys.
    pub fn keys(&self) -> impl Iterator<Item = &String> {
        self.values.keys()
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.values.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    /// The bytes of all keys and values.
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn adding_makes_a_number_and_refuses_everything_else() {
        let mut values = Values::default();
        assert_eq!(values.add("n", 5), Ok(5));
        assert_eq!(values.add("n", -7), Ok(-2));
        assert_eq!(values.get("n"), Some(&b"-2"[..]));
        values.set("text", b"two".to_vec()).unwrap();
        assert_eq!(values.add("text", 1), Err(ValueError::NotANumber("text".to_owned())));
        values.set("most", i64::MAX.to_string().into_bytes()).unwrap();
        assert!(values.add("most", 1).is_err());
    }

    #[test]
    fn comparing_makes_a_missing_key_only_if_nothing_is_expected() {
        let mut values = Values::default();
        assert_eq!(values.compare_set("k", b"old", b"new".to_vec()), Err(ValueError::Missing("k".to_owned())));
        assert_eq!(values.compare_set("k", b"", b"a".to_vec()), Ok(true));
        assert_eq!(values.compare_set("k", b"", b"b".to_vec()), Ok(false));
        assert_eq!(values.compare_set("k", b"a", b"b".to_vec()), Ok(true));
        assert_eq!(values.get("k"), Some(&b"b"[..]));
    }

    #[test]
    fn room_is_counted_and_given_back() {
        let mut values = Values::default();
        values.set("key", vec![0; 100]).unwrap();
        values.append(&[("key".to_owned(), vec![1; 20])]).unwrap();
        assert_eq!((values.len(), values.bytes()), (1, 123));
        assert_eq!(values.set("large", vec![0; MOST_BYTES]), Err(ValueError::Full(123 + 5 + MOST_BYTES)));
        assert_eq!(values.set("", vec![]), Err(ValueError::Key(0)));
        assert!(values.set(&"k".repeat(2000), vec![]).is_err());
        assert!(values.delete("key") && !values.delete("key"));
        assert_eq!(values.bytes(), 0);
    }

    #[test]
    fn what_does_not_fit_as_a_whole_changes_nothing() {
        let entry = |key: &str, bytes| (key.to_owned(), vec![0; bytes]);
        let mut values = Values::default();
        values.set_all(vec![entry("a", 5), entry("a", 7), entry("b", 1)]).unwrap();
        assert_eq!((values.get("a").map(<[u8]>::len), values.bytes()), (Some(7), 10), "the last of the same key");
        let before = values.clone();
        assert!(values.set_all(vec![entry("a", 1), entry("c", 1), entry("d", MOST_BYTES)]).is_err());
        assert!(values.set_all(vec![entry("a", 1), entry("", 1)]).is_err());
        assert!(values.append(&[entry("a", 1), entry("c", MOST_BYTES / 2), entry("c", MOST_BYTES / 2)]).is_err());
        assert_eq!(values, before);
        values.append(&[entry("c", 2), entry("c", 3)]).unwrap();
        assert_eq!((values.get("c").map(<[u8]>::len), values.bytes()), (Some(5), 16));
    }

    #[test]
    fn prefixes_keep_keys_apart() {
        let mut values = Values::default();
        for key in ["a/1", "a/2", "ab", "b/1"] {
            values.set(key, vec![]).unwrap();
        }
        assert_eq!((values.count("a/"), values.count(""), values.count("c")), (2, 4, 0));
    }
}

//! Files that nobody else may read.

use std::fs::{File, Metadata};
use std::io::Read as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use crate::{Error, Result};

/// Who may read a file beside its owner.
const GROUP: u32 = 0o040;
const OTHERS: u32 = 0o004;

/// Reads a token, a password or a private key.
///
/// # Errors
/// When it cannot be read, or when others can.
pub fn read_secret(path: &Path) -> Result<Vec<u8>> {
    let wrong = |error: std::io::Error| Error::file(path, &error);
    // What is looked at is what is read, whatever happens to the name meanwhile.
    let mut file = File::open(path).map_err(wrong)?;
    check(path, &file.metadata().map_err(wrong)?)?;
    let mut secret = Vec::new();
    file.read_to_end(&mut secret).map_err(wrong)?;
    Ok(secret)
}

fn check(path: &Path, found: &Metadata) -> Result<()> {
    // A pipe, which a shell makes of `<(command)`, is between two processes.
    if !found.is_file() {
        return Ok(());
    }
    // What the system mounts for a container belongs to root, and is for a group that this process is in.
    let mounted = found.uid() == 0 && !rustix::process::geteuid().is_root();
    let open = found.mode() & if mounted { OTHERS } else { GROUP | OTHERS };
    if open == 0 {
        return Ok(());
    }
    let who = if open & OTHERS == 0 { "its group" } else { "everyone" };
    let mode = found.mode() & 0o7777;
    Err(Error::file(path, &format!("it is a secret that {who} can read (mode {mode:04o}); run chmod 600 on it")))
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn what_group_or_others_can_read_is_refused_with_its_mode() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("secret");
        std::fs::write(&path, "sesame").unwrap();
        for (mode, refused) in [
            (0o600, None),
            (0o400, None),
            (0o700, None),
            (0o640, Some("its group can read (mode 0640)")),
            (0o644, Some("everyone can read (mode 0644)")),
            (0o604, Some("everyone can read (mode 0604)")),
        ] {
            std::fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
            match (read_secret(&path), refused) {
                (Ok(found), None) => assert_eq!(found, b"sesame"),
                (Err(error), Some(refused)) => {
                    let text = error.to_string();
                    assert!(text.contains(refused) && text.contains("chmod 600"), "{text}");
                    assert!(text.contains(path.to_str().unwrap()) && !text.contains("sesame"), "{text}");
                }
                (found, _) => panic!("mode {mode:o}: {found:?}"),
            }
        }
    }
}

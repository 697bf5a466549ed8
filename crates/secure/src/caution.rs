//! What is said of files at the start although it stops nothing: a secret that others can read.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// The mode of a file that others than its owner may read or write; `None`: nobody else may, or it cannot be looked at.
pub fn open_to_others(path: &Path) -> Option<u32> {
    let mode = std::fs::metadata(path).ok()?.permissions().mode() & 0o777;
    (mode & 0o077 != 0).then_some(mode)
}

/// Says in the log that a file whose content is to stay secret is open to others. `setting` names it.
pub fn warn_if_open(setting: &'static str, path: &Path) {
    if let Some(mode) = open_to_others(path) {
        let (path, mode) = (path.display(), format!("{mode:o}"));
        tracing::warn!(event = "secret_readable", setting, %path, mode, "others of this host may read it: chmod 600");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_others_can_read_is_told() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("secret");
        assert_eq!(open_to_others(&path), None, "whoever reads it says that it is not there");
        std::fs::write(&path, "x").unwrap();
        for (mode, told) in [(0o600, None), (0o400, None), (0o640, Some(0o640)), (0o604, Some(0o604))] {
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
            assert_eq!(open_to_others(&path), told);
        }
    }
}

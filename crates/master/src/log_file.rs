//! Log lines in files, named and kept as the peer's logging library does: `PROGRAM.INFO.DATE-TIME.PID` in `log_dir`, a
//! link `PROGRAM.INFO` to the newest one, and a new file when one has `max_log_size` megabytes.

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
use tracing_subscriber::fmt::MakeWriter;

/// The program's name in names of files: scripts look for the peer's.
const PROGRAM: &str = "mooncake_master";

/// A log that begins a new file when one is full.
#[derive(Clone)]
pub(crate) struct LogFile(Arc<Mutex<State>>);

struct State {
    folder: PathBuf,
    /// Where the link is.
    link: PathBuf,
    most: u64,
    file: File,
    written: u64,
    /// Files so far: two in one second need two names.
    number: u32,
}

impl LogFile {
    /// Opens the first file. `link_dir`: where the link is kept, empty for the folder itself. `most`: bytes of one file.
    pub(crate) fn open(folder: &str, link_dir: &str, most: u64) -> io::Result<LogFile> {
        let folder = PathBuf::from(folder);
        let link = if link_dir.is_empty() { folder.clone() } else { PathBuf::from(link_dir) };
        let link = link.join(format!("{PROGRAM}.INFO"));
        let file = begin(&folder, &link, 0)?;
        Ok(LogFile(Arc::new(Mutex::new(State { folder, link, most, file, written: 0, number: 1 }))))
    }
}

fn begin(folder: &Path, link: &Path, number: u32) -> io::Result<File> {
    let suffix = if number == 0 { String::new() } else { format!(".{number}") };
    let name = format!("{PROGRAM}.INFO.{}.{}{suffix}", stamp(yb_env::epoch_millis() / 1000), std::process::id());
    let path = folder.join(name);
    let file = File::options().create(true).append(true).open(&path)?;
    // Whoever follows the log finds the newest file; without the link the log is still written.
    let _ = std::fs::remove_file(link);
    let target = if link.parent() == Some(folder) { path.file_name().map(PathBuf::from) } else { Some(path) };
    if let Some(target) = target {
        let _ = std::os::unix::fs::symlink(target, link);
    }
    Ok(file)
}

/// Seconds since 1970 as `YYYYMMDD-HHMMSS`, UTC. Days to date: Howard Hinnant, "chrono-compatible low-level date
/// algorithms", civil_from_days.
fn stamp(seconds: u64) -> String {
    let (days, second) = (seconds / 86_400 + 719_468, seconds % 86_400);
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    format!("{year:04}{month:02}{day:02}-{:02}{:02}{:02}", second / 3600, second / 60 % 60, second % 60)
}

impl Write for LogFile {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let mut state = self.0.lock();
        if state.written >= state.most {
            let next = begin(&state.folder, &state.link, state.number)?;
            (state.file, state.written) = (next, 0);
            state.number += 1;
        }
        state.file.write_all(line)?;
        state.written += line.len() as u64;
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.lock().file.flush()
    }
}

impl<'a> MakeWriter<'a> for LogFile {
    type Writer = LogFile;

    fn make_writer(&'a self) -> LogFile {
        self.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates() {
        assert_eq!(stamp(0), "19700101-000000");
        assert_eq!(stamp(951_827_696), "20000229-123456");
        assert_eq!(stamp(4_102_444_799), "20991231-235959");
    }

    #[test]
    fn a_full_file_is_followed_by_the_next_and_the_link_shows_the_newest() {
        let folder = tempfile::tempdir().unwrap();
        let mut log = LogFile::open(folder.path().to_str().unwrap(), "", 10).unwrap();
        for line in ["first line\n", "second\n", "third\n"] {
            log.write_all(line.as_bytes()).unwrap();
        }
        let newest = std::fs::read_to_string(folder.path().join("mooncake_master.INFO")).unwrap();
        assert_eq!(newest, "second\nthird\n");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 3, "two files and the link");
        assert!(LogFile::open("/nonexistent/folder", "", 10).is_err());
    }
}

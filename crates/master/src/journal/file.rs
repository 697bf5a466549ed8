//! The file of the log: opened under a lock, appended to, written anew when it has grown.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use yb_journal::Image;

use super::{JournalError, JournalOptions};

/// A log is written anew when it has grown by this much, and by twice what it says.
const COMPACT_AFTER: u64 = 64 << 20;
/// A clock that went back by more than this says nothing of an age.
const CLOCK_SLACK: Duration = Duration::from_secs(60);

/// Keys of everybody's objects are in it.
const OWNER_ONLY: u32 = 0o600;

/// The open log.
#[derive(Debug)]
pub(super) struct LogFile {
    path: PathBuf,
    /// `None`: it was given up, and is not there any more.
    file: Option<File>,
    /// It is to be removed before anything else.
    doomed: bool,
    sync: bool,
    boot: Vec<u8>,
    len: u64,
    /// How long it was when it was written anew.
    snapshot: u64,
    /// Held as long as this process has the log.
    _lock: File,
}

/// What opening comes to.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) file: LogFile,
    pub(super) image: Image,
    pub(super) before: Before,
}

/// What became of the log that was there at the start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Before {
    /// There was none.
    Nothing,
    /// It was read.
    Read,
    /// Too old, or of another start of the host.
    NotUsed,
    /// Damaged and put aside.
    Damaged,
}

impl Before {
    pub(crate) const ALL: [Before; 4] = [Before::Nothing, Before::Read, Before::NotUsed, Before::Damaged];

    /// Its word on the page of metrics.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Before::Nothing => "nothing",
            Before::Read => "read",
            Before::NotUsed => "not_used",
            Before::Damaged => "damaged",
        }
    }
}

impl JournalOptions {
    /// The lock lies beside the log: a log that is reached by two names would have two. A link is followed, of two hard
    /// links neither is better.
    fn by_its_own_name(&self) -> Result<JournalOptions, JournalError> {
        let path = match self.path.canonicalize() {
            Ok(path) => path,
            Err(error) if error.kind() == io::ErrorKind::NotFound && !self.path.is_symlink() => self.path.clone(),
            Err(error) => return Err(self.failed(&error)),
        };
        match std::fs::metadata(&path) {
            Ok(found) if !found.is_file() => Err(self.failed(&"it is not a file")),
            Ok(found) if found.nlink() > 1 => {
                Err(self.failed(&"it has more than one name (hard links), and another master may have it by the other"))
            }
            _ => Ok(JournalOptions { path, ..self.clone() }),
        }
    }

    pub(super) fn failed(&self, why: &dyn std::fmt::Display) -> JournalError {
        JournalError { path: self.path.clone(), why: why.to_string() }
    }
}

/// A name beside the log.
fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}

fn boot() -> Vec<u8> {
    std::fs::read("/proc/sys/kernel/random/boot_id").unwrap_or_default()
}

impl LogFile {
    /// Takes the lock, reads what is there, and writes it anew: a log begins with a snapshot of the one before.
    pub(super) fn open(options: &JournalOptions, epoch_ms: u64) -> Result<Found, JournalError> {
        let options = &options.by_its_own_name()?;
        let path = &options.path;
        let lock =
            OpenOptions::new().create(true).truncate(false).write(true).mode(OWNER_ONLY).open(beside(path, ".lock"));
        let lock = lock.map_err(|error| options.failed(&error))?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(options.failed(&"another master has it")),
            Err(TryLockError::Error(error)) => return Err(options.failed(&error)),
        }
        let boot = boot();
        let log = match std::fs::read(path) {
            Ok(log) => Some(log),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(options.failed(&error)),
        };
        let (head, sync) = (boot.clone(), options.sync);
        let (image, before) =
            log.map_or_else(|| (Image::default(), Before::Nothing), |log| use_of(options, &log, epoch_ms));
        let image = Image { boot: head, synced: sync, ..image };
        let mut file =
            LogFile { path: path.clone(), file: None, doomed: false, sync, boot, len: 0, snapshot: 0, _lock: lock };
        file.write_anew(&image).map_err(|error| options.failed(&error))?;
        Ok(Found { file, image, before })
    }

    /// Appends records; they are durable when this returns. A log that cannot be written is removed, as it would say what is
    /// not so, and the master goes on without. Answers the bytes that were written, none when there is no log any more.
    ///
    /// # Errors
    /// It can be neither written nor removed: nothing may count on what it does not say.
    pub(super) fn append(&mut self, records: &[u8]) -> io::Result<u64> {
        if self.doomed {
            return self.remove().map(|()| 0);
        }
        let Some(file) = &mut self.file else { return Ok(0) };
        let written = file.write_all(records).and_then(|()| if self.sync { file.sync_data() } else { Ok(()) });
        match written {
            Ok(()) => {
                let bytes = records.len() as u64;
                self.len += bytes;
                Ok(bytes)
            }
            Err(error) => self.give_up(&error).map(|()| 0),
        }
    }

    /// Whether it is written. It is not once it was given up.
    pub(super) fn is_in_use(&self) -> bool {
        self.file.is_some() && !self.doomed
    }

    /// Whether most of it is out of date.
    pub(super) fn is_long(&self) -> bool {
        self.file.is_some() && self.len > self.snapshot * 3 + COMPACT_AFTER
    }

    /// Writes what it says anew, shorter.
    pub(super) fn compact(&mut self) {
        let before = self.len;
        let image = std::fs::read(&self.path).and_then(|log| yb_journal::read(&log).map_err(io::Error::other));
        let written = match image {
            Ok(image) => self.write_anew(&image),
            // What is damaged is not added to.
            Err(error) => return drop(self.give_up(&error)),
        };
        match written {
            Ok(()) => tracing::info!(event = "journal_compacted", before, after = self.len, "the log was written anew"),
            Err(error) => {
                self.snapshot = self.len;
                tracing::warn!(event = "journal_long", %error, "the log cannot be written anew and goes on growing");
            }
        }
    }

    fn give_up(&mut self, why: &io::Error) -> io::Result<()> {
        self.doomed = true;
        tracing::error!(event = "journal_given_up", error = %why, path = ?self.path, "the log cannot be written and is removed: the next life of this master learns from its nodes only");
        self.remove()
    }

    fn remove(&mut self) -> io::Result<()> {
        match std::fs::remove_file(&self.path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        if self.sync {
            sync_directory(&self.path)?;
        }
        (self.file, self.doomed) = (None, false);
        Ok(())
    }

    /// The next log under another name, then under its own: there is always a whole one.
    ///
    /// # Errors
    /// The log is as it was.
    fn write_anew(&mut self, image: &Image) -> io::Result<()> {
        let mut log = Vec::new();
        Image { boot: self.boot.clone(), synced: self.sync, ..image.clone() }.append(&mut log);
        let next = beside(&self.path, ".new");
        let mut file = OpenOptions::new().create(true).truncate(true).write(true).mode(OWNER_ONLY).open(&next)?;
        file.write_all(&log)?;
        if self.sync {
            file.sync_all()?;
        }
        std::fs::rename(&next, &self.path)?;
        (self.len, self.snapshot, self.file) = (log.len() as u64, log.len() as u64, Some(file));
        if self.sync
            && let Err(error) = sync_directory(&self.path)
        {
            // The older log may come back under this name.
            drop(self.give_up(&error));
        }
        Ok(())
    }
}

fn sync_directory(path: &Path) -> io::Result<()> {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(parent)?.sync_all()
}

/// What may be used of a log: all of it, or nothing.
fn use_of(options: &JournalOptions, log: &[u8], epoch_ms: u64) -> (Image, Before) {
    let image = match yb_journal::read(log) {
        Ok(image) => image,
        Err(damage) => {
            let kept = beside(&options.path, ".damaged");
            let moved = std::fs::rename(&options.path, &kept).is_ok();
            tracing::error!(event = "journal_damaged", %damage, path = ?options.path, kept = ?moved.then_some(kept), "the log is not used: what came before the damage may have been overwritten since");
            return (Image::default(), Before::Damaged);
        }
    };
    let torn = log.len() as u64 - image.whole;
    if torn > 0 {
        tracing::info!(
            event = "journal_torn",
            bytes = torn,
            "the log ends in the middle of a record, which nobody relied on"
        );
    }
    let max_age = u64::try_from(options.max_age.as_millis()).unwrap_or(u64::MAX);
    let slack = u64::try_from(CLOCK_SLACK.as_millis()).unwrap_or(u64::MAX);
    let why = if !image.synced && image.boot != boot() {
        "the host was started anew, and the log was not synced to its disk"
    } else if epoch_ms.saturating_sub(image.alive_ms) > max_age || image.alive_ms.saturating_sub(epoch_ms) > slack {
        "its master was last heard of longer ago than journal_max_age, or the clock was set: others may have had the nodes meanwhile"
    } else {
        return (image, Before::Read);
    };
    tracing::warn!(event = "journal_not_used", path = ?options.path, "the log is not used: {why}");
    (Image::default(), Before::NotUsed)
}

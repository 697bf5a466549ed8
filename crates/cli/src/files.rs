//! Values from files and into files.

use std::fs::File;
use std::io::{self, ErrorKind, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::failure::{Failure, Outcome};
use crate::interrupt::Interruptible;
use crate::output;
use crate::progress::Bytes;
use crate::size::bytes;

/// A pipe or device may have no end, and a value is in memory before it is stored.
const MOST_OF_A_STREAM: u64 = 1 << 30;
/// Moved at a time, so that a bar moves and a signal is seen.
const PIECE: usize = 4 << 20;

/// All of a file; `-` is standard input.
pub fn read(path: &Path) -> Outcome<Vec<u8>> {
    let failed = |error: io::Error| cannot("read", path, &error);
    if path.as_os_str() == "-" {
        return stream(path, io::stdin().lock());
    }
    let mut file = File::open(path).map_err(failed)?;
    let about = file.metadata().map_err(failed)?;
    if about.is_dir() {
        return Err(cannot("read", path, &io::Error::from(ErrorKind::IsADirectory)));
    }
    match about.is_file() {
        true => read_pieces(&mut file, about.len(), u64::MAX).map(|(data, _)| data).map_err(failed),
        false => stream(path, file),
    }
}

fn stream(path: &Path, mut from: impl Read) -> Outcome<Vec<u8>> {
    match read_pieces(&mut from, 0, MOST_OF_A_STREAM).map_err(|error| cannot("read", path, &error))? {
        (data, true) => Ok(data),
        (_, false) => Err(Failure::failed(format!(
            "{}: more than {} from something that is no file, which may have no end; write it to a file first",
            path.display(),
            bytes(MOST_OF_A_STREAM)
        ))),
    }
}

/// Up to `most` bytes; whether that was all.
fn read_pieces(from: &mut impl Read, about: u64, most: u64) -> io::Result<(Vec<u8>, bool)> {
    let bar = Bytes::new("reading", about);
    let mut data = Vec::new();
    let about = usize::try_from(about).map_err(|_| ErrorKind::OutOfMemory)?;
    data.try_reserve_exact(about.saturating_add(1)).map_err(|_| ErrorKind::OutOfMemory)?;
    loop {
        let room = most.saturating_sub(data.len() as u64).saturating_add(1).min(PIECE as u64);
        let read = from.take(room).read_to_end(&mut data)?;
        bar.add(read);
        if data.len() as u64 > most {
            return Ok((data, false));
        }
        if read == 0 {
            return Ok((data, true));
        }
    }
}

/// Whether a file could be written there, in words.
pub fn check_target(path: &Path) -> Outcome {
    match std::fs::metadata(path) {
        Ok(about) if about.is_dir() => Err(cannot("write", path, &io::Error::from(ErrorKind::IsADirectory))),
        Ok(_) => Ok(()),
        Err(_) => std::fs::metadata(folder_of(path)).map(|_| ()).map_err(|error| cannot("write", path, &error)),
    }
}

/// Writes a value to standard output.
pub fn write_out(value: &[u8], work: &Interruptible) -> Outcome {
    let (total, written) = (value.len(), Arc::new(AtomicU64::new(0)));
    let so_far = Arc::clone(&written);
    work.so_far(move || format!("{} of {total} bytes were written", so_far.load(Ordering::Relaxed)));
    for piece in value.chunks(PIECE) {
        output::bytes(piece)?;
        written.fetch_add(piece.len() as u64, Ordering::Relaxed);
    }
    work.hold();
    Ok(())
}

/// A file gets the whole value or keeps what it had; a device or pipe is written straight.
pub fn write(path: &Path, value: &[u8], work: &Interruptible) -> Outcome {
    let failed = |error: io::Error| cannot("write", path, &error);
    if std::fs::metadata(path).is_ok_and(|about| !about.is_file()) {
        return File::options().write(true).open(path).and_then(|mut file| file.write_all(value)).map_err(failed);
    }
    // What is half written has to be taken away.
    work.hold();
    let mut file = tempfile::Builder::new().prefix(".yuebing-").tempfile_in(folder_of(path)).map_err(failed)?;
    let bar = Bytes::new("writing", value.len() as u64);
    for piece in value.chunks(PIECE) {
        if work.is_asked() {
            return Err(Failure::interrupted(format_args!("{} is as it was before", path.display())));
        }
        file.write_all(piece).map_err(failed)?;
        bar.add(piece.len());
    }
    let mask = rustix::process::umask(rustix::fs::Mode::empty());
    rustix::process::umask(mask);
    let mode = rustix::fs::Mode::from_raw_mode(0o666 & !mask.as_raw_mode());
    rustix::fs::fchmod(file.as_file(), mode).map_err(|error| failed(error.into()))?;
    file.persist(path).map_err(|error| failed(error.error))?;
    Ok(())
}

fn folder_of(path: &Path) -> PathBuf {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).map_or_else(|| PathBuf::from("."), PathBuf::from)
}

/// What went wrong with a file, and what to look at.
fn cannot(what: &str, path: &Path, error: &io::Error) -> Failure {
    let folder = folder_of(path);
    let why = match (error.kind(), what) {
        (ErrorKind::IsADirectory, "read") => "it is a directory; a value is one file".to_owned(),
        (ErrorKind::IsADirectory, _) => "it is a directory; name a file in it".to_owned(),
        (ErrorKind::NotFound, "read") => "there is no such file".to_owned(),
        (ErrorKind::NotFound, _) => format!("there is no directory {}", folder.display()),
        (ErrorKind::PermissionDenied, "read") => "no permission to read it".to_owned(),
        (ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem, _) => {
            format!("no permission to write into {}", folder.display())
        }
        (ErrorKind::StorageFull | ErrorKind::QuotaExceeded, _) => {
            format!("no space is left in {}; a file that was there is as it was", folder.display())
        }
        _ => error.to_string(),
    };
    Failure::failed(format!("cannot {what} {}: {why}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_stream_without_an_end_is_given_up() {
        assert!(!read_pieces(&mut io::repeat(0), 0, 1000).unwrap().1);
        let (data, whole) = read_pieces(&mut &[7; 1000][..], 0, 1000).unwrap();
        assert!(whole && data.len() == 1000);
    }

    #[test]
    fn a_file_is_replaced_whole_and_readable() {
        let work = Interruptible::start("").unwrap();
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("out");
        write(&path, b"first, longer", &work).unwrap();
        write(&path, b"second", &work).unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"second");
        assert_ne!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o200, 0);
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 1);
        write(Path::new("/dev/null"), b"x", &work).unwrap();
        let full = write(Path::new("/dev/full"), b"x", &work).unwrap_err().to_string();
        assert!(full.contains("cannot write /dev/full: no space is left"), "{full}");
        let gone = directory.path().join("no/such");
        assert!(check_target(&gone).unwrap_err().to_string().contains("there is no directory"));
        assert!(write(&gone, b"x", &work).is_err());
        assert!(check_target(directory.path()).unwrap_err().to_string().contains("it is a directory"));
        assert_eq!(read(&path).unwrap(), b"second");
        assert!(read(directory.path()).unwrap_err().to_string().contains("a value is one file"));
        assert!(read(&gone).unwrap_err().to_string().contains("there is no such file"));
    }
}

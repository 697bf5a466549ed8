//! The terminal as a screen: another page while this lives, and the old one afterwards, however it ends.

use std::io::{self, Write};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::termios::{
    LocalModes, OptionalActions, SpecialCodeIndex, Termios, isatty, tcgetattr, tcgetwinsize, tcsetattr,
};

use super::picture::Room;
use crate::signals::Signals;

/// The other page, without a cursor; and back.
const ENTER: &[u8] = b"\x1b[?1049h\x1b[?25l";
const LEAVE: &[u8] = b"\x1b[?25h\x1b[?1049l";
/// To the upper left corner.
const HOME: &[u8] = b"\x1b[H";
/// Clear to the end of the line, of the page.
const REST_OF_LINE: &[u8] = b"\x1b[K\r\n";
const REST_OF_PAGE: &[u8] = b"\x1b[J";
/// Of a terminal that does not say.
const USUAL: Room = Room { columns: 80, rows: 24 };

/// Standard output as a page of its own. Dropping it gives the terminal back.
#[derive(Debug)]
pub struct Screen {
    /// How standard input was; none if it is no terminal.
    before: Option<Termios>,
}

/// Why a wait ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pressed {
    /// Nothing: the time is over.
    Nothing,
    /// Leave: q, Ctrl-C, a signal.
    Quit,
    /// Look again now.
    Again,
}

impl Screen {
    /// Whether standard output is a terminal.
    pub fn is_there() -> bool {
        isatty(io::stdout())
    }

    /// Turns to the other page; keys arrive at once and are not shown. Ctrl-C stays a signal.
    ///
    /// # Errors
    /// Of the terminal.
    pub fn enter() -> io::Result<Screen> {
        let screen = Screen { before: tcgetattr(io::stdin()).ok() };
        if let Some(before) = &screen.before {
            let mut quiet = before.clone();
            quiet.local_modes.remove(LocalModes::ICANON | LocalModes::ECHO);
            quiet.special_codes[SpecialCodeIndex::VMIN] = 0;
            quiet.special_codes[SpecialCodeIndex::VTIME] = 0;
            tcsetattr(io::stdin(), OptionalActions::Now, &quiet)?;
        }
        put(&[ENTER])?;
        Ok(screen)
    }

    /// What fits now.
    pub fn room(&self) -> Room {
        match tcgetwinsize(io::stdout()) {
            Ok(size) if size.ws_col > 0 && size.ws_row > 1 => {
                // The last line stays free, so that nothing scrolls.
                Room { columns: size.ws_col.into(), rows: usize::from(size.ws_row) - 1 }
            }
            _ => USUAL,
        }
    }

    /// Shows these lines and nothing else.
    ///
    /// # Errors
    /// Of the terminal.
    pub fn show(&self, lines: &[String]) -> io::Result<()> {
        let mut page: Vec<&[u8]> = vec![HOME];
        for line in lines {
            page.extend([line.as_bytes(), REST_OF_LINE]);
        }
        page.push(REST_OF_PAGE);
        put(&page)
    }

    /// Waits for a key, a signal, or the end of the time.
    pub fn wait(&self, signals: &Signals, time: Timespec) -> Pressed {
        if signals.received() {
            return Pressed::Quit;
        }
        let stdin = io::stdin();
        let mut descriptors = vec![PollFd::new(signals, PollFlags::IN)];
        if self.before.is_some() {
            descriptors.push(PollFd::new(&stdin, PollFlags::IN));
        }
        let ready = poll(&mut descriptors, Some(&time)).unwrap_or(0);
        if signals.received() {
            return Pressed::Quit;
        }
        if ready == 0 || self.before.is_none() {
            return Pressed::Nothing;
        }
        let mut keys = [0; 16];
        match rustix::io::read(&stdin, &mut keys) {
            // The terminal is gone.
            Ok(0) => Pressed::Quit,
            Ok(count) => match keys.get(..count).unwrap_or_default() {
                keys if keys.iter().any(|key| matches!(key, b'q' | b'Q')) => Pressed::Quit,
                _ => Pressed::Again,
            },
            Err(rustix::io::Errno::INTR | rustix::io::Errno::AGAIN) => Pressed::Nothing,
            Err(_) => Pressed::Quit,
        }
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        // There is nobody left to tell that the terminal went away.
        let _ = put(&[LEAVE]);
        if let Some(before) = &self.before {
            let _ = tcsetattr(io::stdin(), OptionalActions::Now, before);
        }
    }
}

fn put(parts: &[&[u8]]) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(&parts.concat())?;
    out.flush()
}

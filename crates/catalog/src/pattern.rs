//! Patterns over keys, and the walk over all keys that they need.
//!
//! **Problem.** The peer's patterns are ECMAScript's, looked for anywhere in a key. Some of them need backtracking,
//! which has no bound; all of them need every key of the table.
//!
//! **Shape.** A pattern that can be searched in linear time is; look-around and back-references go to a backtracking
//! engine with a limit on its steps. The walk goes in steps: some keys are copied under a shard's lock, matched
//! without any lock, and what matches is then looked up or removed by its key like in any other call. Nobody waits for
//! a match.

use fancy_regex::{Regex as Backtracking, RegexBuilder as BacktrackingBuilder};
use regex::bytes::{Regex, RegexBuilder};
use yb_types::{ErrorCode, MonotonicTime};

use crate::catalog::Catalog;
use crate::entry::flag;
use crate::key::{SHARDS, Tenant};
use crate::remove::Force;
use crate::view::ObjectView;

/// A pattern over keys, found anywhere in the key. Both are taken byte by byte.
pub struct KeyPattern(Engine);

enum Engine {
    Linear(Regex),
    Backtracking(Box<Backtracking>),
}

/// Memory that a compiled pattern may take.
const PATTERN_BYTES: usize = 1 << 20;
/// Steps that a backtracking pattern may take on one key: about a millisecond.
const BACKTRACKS: usize = 100_000;
/// Keys copied under one lock.
const KEYS_PER_LOCK: u32 = 64;
/// Keys looked at in one step of a whole walk.
const KEYS_PER_STEP: u32 = 1024;
/// The same for a pattern that may take its most steps on each of them.
const KEYS_PER_BACKTRACKING_STEP: u32 = 64;
/// Longest key that a backtracking pattern is tried on. What it looks ahead for costs the length of the rest of the
/// key at each place, and that does not count as a step.
const BACKTRACKED_KEY_MAX: usize = 4096;

impl KeyPattern {
    /// Compiles a pattern.
    ///
    /// # Errors
    /// `INVALID_PARAMS` for a pattern that is wrong or too large.
    pub fn new(pattern: &[u8]) -> Result<Self, ErrorCode> {
        let Translated { pattern, looks_around } = translate(pattern);
        let engine = if looks_around {
            let mut builder = BacktrackingBuilder::new(&pattern);
            let built = builder.backtrack_limit(BACKTRACKS).delegate_size_limit(PATTERN_BYTES).build();
            built.ok().map(|regex| Engine::Backtracking(Box::new(regex)))
        } else {
            let mut builder = RegexBuilder::new(&pattern);
            builder.unicode(false).crlf(true).size_limit(PATTERN_BYTES).build().ok().map(Engine::Linear)
        };
        engine.map(KeyPattern).ok_or(ErrorCode::INVALID_PARAMS)
    }

    fn keys_per_step(&self) -> u32 {
        match self.0 {
            Engine::Linear(_) => KEYS_PER_STEP,
            Engine::Backtracking(_) => KEYS_PER_BACKTRACKING_STEP,
        }
    }

    /// Whether the pattern is found in a key.
    ///
    /// # Errors
    /// `INVALID_PARAMS` when that takes more steps than a pattern may take, or might.
    pub fn matches(&self, key: &[u8]) -> Result<bool, ErrorCode> {
        match &self.0 {
            Engine::Linear(regex) => Ok(regex.is_match(key)),
            Engine::Backtracking(_) if key.len() > BACKTRACKED_KEY_MAX => Err(ErrorCode::INVALID_PARAMS),
            Engine::Backtracking(regex) => {
                let found = match std::str::from_utf8(key) {
                    Ok(text) if text.is_ascii() => regex.is_match(text),
                    _ => regex.is_match(&key.iter().map(|byte| char::from(*byte)).collect::<String>()),
                };
                found.map_err(|_| ErrorCode::INVALID_PARAMS)
            }
        }
    }
}

struct Translated {
    pattern: String,
    /// Whether it has look-around or back-references.
    looks_around: bool,
}

/// Writes an ECMAScript pattern so that both engines read it as ECMAScript does: bytes above ASCII and control escapes
/// as numbers, classes of ASCII only, and what would be an operator in a bracket as itself.
fn translate(pattern: &[u8]) -> Translated {
    let mut out = String::with_capacity(pattern.len());
    let mut looks_around = false;
    let mut rest = pattern.iter().copied().peekable();
    let mut in_bracket = false;
    while let Some(byte) = rest.next() {
        match byte {
            b'\\' => {
                looks_around |= !in_bracket && rest.peek().is_some_and(|byte| matches!(byte, b'1'..=b'9'));
                translate_escape(&mut rest, in_bracket, &mut out);
            }
            b'(' if !in_bracket && rest.peek() == Some(&b'?') => {
                rest.next();
                looks_around |= rest.peek().is_some_and(|byte| matches!(byte, b'=' | b'!' | b'<'));
                out.push_str("(?");
            }
            b'[' if !in_bracket => {
                in_bracket = true;
                out.push('[');
            }
            b'[' if rest.peek() == Some(&b':') => {
                out.push('[');
                for byte in rest.by_ref() {
                    push_byte(byte, &mut out);
                    if byte == b']' {
                        break;
                    }
                }
            }
            b'[' | b'&' | b'~' if in_bracket => {
                out.push('\\');
                out.push(char::from(byte));
            }
            b']' => {
                in_bracket = false;
                out.push(']');
            }
            _ => push_byte(byte, &mut out),
        }
    }
    Translated { pattern: out, looks_around }
}

fn push_byte(byte: u8, out: &mut String) {
    if byte.is_ascii() {
        out.push(char::from(byte));
    } else {
        out.push_str(&format!("\\x{byte:02X}"));
    }
}

fn translate_escape(rest: &mut impl Iterator<Item = u8>, in_bracket: bool, out: &mut String) {
    let class = |inside: &str| if in_bracket { inside.to_owned() } else { format!("[{inside}]") };
    match rest.next() {
        None => out.push('\\'),
        Some(b'0') => out.push_str("\\x00"),
        Some(b'c') => {
            let control = rest.next().unwrap_or(0) & 0x1f;
            out.push_str(&format!("\\x{control:02X}"));
        }
        Some(b'b') if in_bracket => out.push_str("\\x08"),
        Some(b'd') => out.push_str(&class("0-9")),
        Some(b'w') => out.push_str(&class("0-9A-Za-z_")),
        Some(b's') => out.push_str(&class("\\t\\n\\x0B\\x0C\\r ")),
        Some(b'D') if !in_bracket => out.push_str("[^0-9]"),
        Some(b'W') if !in_bracket => out.push_str("[^0-9A-Za-z_]"),
        Some(b'S') if !in_bracket => out.push_str("[^\\t\\n\\x0B\\x0C\\r ]"),
        Some(byte) => {
            out.push('\\');
            push_byte(byte, out);
        }
    }
}

/// How far a walk over all keys has come. It meets every key that is there all the time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KeyWalk {
    shard: usize,
    slot: u32,
}

/// Keys, copied one behind the other.
#[derive(Default)]
struct Copied {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl Copied {
    fn push(&mut self, key: &[u8]) {
        self.bytes.extend_from_slice(key);
        self.ends.push(self.bytes.len());
    }

    fn iter(&self) -> impl Iterator<Item = &[u8]> {
        let starts = std::iter::once(0).chain(self.ends.iter().copied());
        starts.zip(&self.ends).map(|(start, &end)| &self.bytes[start..end])
    }
}

impl Catalog {
    /// Goes on looking for the readable keys of a tenant that match, at about `budget` keys, and adds them to `found`.
    /// Answers whether there is more to look at.
    ///
    /// # Errors
    /// `INVALID_PARAMS` when a key takes more steps than a pattern may take.
    pub fn find_keys(
        &self,
        tenant: Tenant,
        pattern: &KeyPattern,
        walk: &mut KeyWalk,
        budget: u32,
        found: &mut Vec<Vec<u8>>,
    ) -> Result<bool, ErrorCode> {
        let mut left = budget;
        while left > 0 && walk.shard < SHARDS {
            let (copied, looked) = self.copy_keys(tenant, walk, left.min(KEYS_PER_LOCK));
            left = left.saturating_sub(looked.max(1));
            for key in copied.iter() {
                if pattern.matches(key)? {
                    found.push(key.to_vec());
                }
            }
        }
        Ok(walk.shard < SHARDS)
    }

    /// Copies the readable keys of a tenant in some slots. Also answers how many slots were looked at.
    fn copy_keys(&self, tenant: Tenant, walk: &mut KeyWalk, most: u32) -> (Copied, u32) {
        let mut copied = Copied::default();
        let state = self.shards[walk.shard].state.read();
        let (first, end) = (walk.slot, walk.slot.saturating_add(most).min(state.slab.len()));
        for slot in first..end {
            let readable = state.slab.get(slot).filter(|entry| entry.tenant == tenant && entry.has(flag::FINISHED));
            if let Some(entry) = readable {
                copied.push(entry.key.as_slice());
            }
        }
        if end == state.slab.len() && !state.shelf.is_empty() {
            let table = self.segments.load();
            state.cold(&table).filter(|record| record.tenant == tenant).for_each(|record| copied.push(&record.key));
        }
        *walk = if end == state.slab.len() {
            KeyWalk { shard: walk.shard + 1, slot: 0 }
        } else {
            KeyWalk { slot: end, ..*walk }
        };
        (copied, end.saturating_sub(first))
    }

    /// Hands out readable objects whose keys match, each with a read lease, a step of the walk; answers whether there is
    /// more. Looks at keys that do not match too: not for a thread that serves requests.
    ///
    /// # Errors
    /// See [`find_keys`](Self::find_keys); some objects may have a lease then.
    pub fn regex_lookup_step(
        &self,
        tenant: Tenant,
        pattern: &KeyPattern,
        walk: &mut KeyWalk,
        now: MonotonicTime,
        mut sink: impl FnMut(ObjectView<'_>),
    ) -> Result<bool, ErrorCode> {
        let mut found = Vec::new();
        let more = self.find_keys(tenant, pattern, walk, pattern.keys_per_step(), &mut found)?;
        self.get_replicas(tenant, &found, now, |_, answer| {
            if let Ok(view) = answer {
                sink(view);
            }
        });
        Ok(more)
    }

    /// Removes what matches, a step of the walk; what may not be removed is passed over. Adds to `removed` how many
    /// objects went. Otherwise as [`regex_lookup_step`](Self::regex_lookup_step).
    ///
    /// # Errors
    /// See [`find_keys`](Self::find_keys); what was removed before stays removed.
    pub fn regex_removal_step(
        &self,
        (tenant, force): (Tenant, Force),
        pattern: &KeyPattern,
        walk: &mut KeyWalk,
        now: MonotonicTime,
        removed: &mut u64,
    ) -> Result<bool, ErrorCode> {
        let mut found = Vec::new();
        // What other nodes bring may match too.
        self.relearning.end();
        let more = self.find_keys(tenant, pattern, walk, pattern.keys_per_step(), &mut found)?;
        self.remove(tenant, &found, force, now, |_, answer| *removed += u64::from(answer.is_ok()));
        Ok(more)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(pattern: &str, key: &[u8]) -> bool {
        KeyPattern::new(pattern.as_bytes()).unwrap().matches(key).unwrap()
    }

    #[test]
    fn patterns_are_ecmascripts() {
        for (pattern, key, answer) in [
            ("key-[0-3]", &b"a key-2 b"[..], true),
            ("^key-\\d+$", b"key-123", true),
            ("^key-\\d+$", b"key-12x", false),
            ("a(?=b)", b"xab", true),
            ("a(?!b)", b"xab", false),
            ("(?!x)a", b"a", true),
            ("(a|b)\\1", b"abba", true),
            ("(a|b)\\1", b"abab", false),
            ("[[]&&", b"[&&", true),
            ("[a[]", b"[", true),
            ("[a&&b]", b"&", true),
            ("[[:alpha:]]+\\/x", b"abc/x", true),
            ("a.b", b"a\nb", false),
            ("a.b", b"a\rb", false),
            ("\\0", b"a\0", true),
            ("\\cJ", b"\n", true),
            ("\\w", "\u{e9}".as_bytes(), false),
            ("\\w(?=x)", b"\xe9x", false),
            ("[\\w-]+=[\\s]", b"a-b= ", true),
            ("\\D\\W\\S", b"a-c", true),
        ] {
            assert_eq!(found(pattern, key), answer, "{pattern} in {key:?}");
        }
        let bytes = KeyPattern::new(b"\xff+").unwrap();
        assert!(bytes.matches(b"a\xff\xff").unwrap() && !bytes.matches("\u{ff}".as_bytes()).unwrap());
        let with_look_ahead = KeyPattern::new(b"\xff(?=\xfe)").unwrap();
        assert!(with_look_ahead.matches(b"\xff\xfe").unwrap() && !with_look_ahead.matches(b"\xfe\xff").unwrap());
    }

    #[test]
    fn wrong_and_endless_patterns_are_refused() {
        for pattern in ["key-[0", "(", "a{2,1}", "*a", "\\", "(?<x"] {
            assert_eq!(KeyPattern::new(pattern.as_bytes()).err(), Some(ErrorCode::INVALID_PARAMS), "{pattern}");
        }
        let endless = KeyPattern::new(b"^(?=(a+)+$)(?:a|a)*\\1b").unwrap();
        assert_eq!(endless.matches(&[b'a'; 64]), Err(ErrorCode::INVALID_PARAMS));
        let every_place = KeyPattern::new(b"(?=.*y)z").unwrap();
        assert_eq!(every_place.matches(&[b'x'; 1 << 20]), Err(ErrorCode::INVALID_PARAMS), "its square is not counted");
        let nested = KeyPattern::new(b"^(a+)+$").unwrap();
        assert_eq!(nested.matches(&[&[b'a'; 1000][..], b"b"].concat()), Ok(false), "linear");
    }
}

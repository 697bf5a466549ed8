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
use crate::ecmascript::{Translated, translate};
use crate::entry::flag;
use crate::key::{SHARDS, Tenant};
use crate::remove::{Force, Removal};
use crate::view::ObjectView;

/// A pattern over keys, found anywhere in the key. Both are taken byte by byte.
pub struct KeyPattern(Engine);

enum Engine {
    Linear(Regex),
    Backtracking(Box<Backtracking>),
}

/// Longest pattern. What an engine builds before it counts is many times as long.
const PATTERN_LEN_MAX: usize = 64 << 10;
/// Longest pattern that needs backtracking: each piece between what looks ahead is compiled by itself.
const BACKTRACKED_PATTERN_MAX: usize = 4096;
/// Memory that a compiled pattern may take.
const PATTERN_BYTES: usize = 1 << 20;
/// The same for each piece of a pattern that needs backtracking.
const DELEGATE_BYTES: usize = 64 << 10;
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
        if pattern.len() > PATTERN_LEN_MAX {
            return Err(ErrorCode::INVALID_PARAMS);
        }
        let length = pattern.len();
        let Translated { pattern, looks_around } = translate(pattern).ok_or(ErrorCode::INVALID_PARAMS)?;
        let engine = if looks_around {
            if length > BACKTRACKED_PATTERN_MAX {
                return Err(ErrorCode::INVALID_PARAMS);
            }
            let mut builder = BacktrackingBuilder::new(&pattern);
            let built = builder.backtrack_limit(BACKTRACKS).delegate_size_limit(DELEGATE_BYTES).build();
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

    /// Removes what matches, a step of the walk; what may not be removed is passed over. Adds to `tally` how many
    /// objects went and stayed. Otherwise as [`regex_lookup_step`](Self::regex_lookup_step).
    ///
    /// # Errors
    /// See [`find_keys`](Self::find_keys); what was removed before stays removed.
    pub fn regex_removal_step(
        &self,
        (tenant, force): (Tenant, Force),
        pattern: &KeyPattern,
        walk: &mut KeyWalk,
        now: MonotonicTime,
        tally: &mut Removal,
    ) -> Result<bool, ErrorCode> {
        let mut found = Vec::new();
        // What other nodes bring may match too.
        self.relearning.end();
        let more = self.find_keys(tenant, pattern, walk, pattern.keys_per_step(), &mut found)?;
        self.remove(tenant, &found, force, now, |_, answer| tally.count(answer));
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
            ("a**", b"", true),
            ("^k*+$", b"kkk", true),
            ("^[]", b"k", false),
            ("^[^]$", b"\n", true),
            ("^[a-]$", b"-", true),
            ("^[a-c-e]+$", b"b-e", true),
            ("^[]a]", b"a]", false),
            ("^[[.a.][=b=]]+$", b"ab", true),
            ("\\k<n>", b"k<n>", true),
            ("\\Qk", b"Qk", true),
            ("\\Ak", b"k", false),
            ("\\x6b\\u0065", b"ke", true),
            ("]}", b"]}", true),
            ("a|", b"zz", true),
            ("((((((((((k))))))))))\\10", b"kk", true),
            ("a#b c", b"a#b c", true),
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
        // The peer refuses these, and an engine of ours would take some of them for more than was meant.
        let foreign = [
            "^*",
            "$*",
            "\\b+",
            "(?=a)*",
            "|*",
            "(*a)",
            "(?i)k",
            "(?<n>k)",
            "(?P<n>k)",
            "(?<=k)",
            "(?<!k)",
            "(?#c)",
            "(?>k)",
            "(?x) k",
            "[\\d-z]",
            "[a-\\d]",
            "[[:foo:]]",
            "[[:alpha:]",
            "[z-a]",
            "[",
            "[^",
            "[\\",
            "a{",
            "a{2",
            "a{,2}",
            "{",
            "a)",
            "\\8",
            "\\1(a)",
            "(a\\1)",
            "\\p{L}",
            "\\xZZ",
            "\\u12",
            "\\c",
            "x{2147483648}",
        ];
        for pattern in foreign {
            assert_eq!(KeyPattern::new(pattern.as_bytes()).err(), Some(ErrorCode::INVALID_PARAMS), "{pattern}");
        }
        let endless = KeyPattern::new(b"^(?=(a+)+$)(?:a|a)*\\1b").unwrap();
        assert_eq!(endless.matches(&[b'a'; 64]), Err(ErrorCode::INVALID_PARAMS));
        let every_place = KeyPattern::new(b"(?=.*y)z").unwrap();
        assert_eq!(every_place.matches(&[b'x'; 1 << 20]), Err(ErrorCode::INVALID_PARAMS), "its square is not counted");
        let nested = KeyPattern::new(b"^(a+)+$").unwrap();
        assert_eq!(nested.matches(&[&[b'a'; 1000][..], b"b"].concat()), Ok(false), "linear");
    }

    #[test]
    fn patterns_that_are_too_long_or_too_deep_are_refused_before_they_are_compiled() {
        let long = |piece: &str, times: usize| KeyPattern::new(piece.repeat(times).as_bytes()).err();
        let refused = Some(ErrorCode::INVALID_PARAMS);
        assert_eq!(long("a|", (32 << 10) + 1), refused);
        assert_eq!(long("(", 10_000), refused);
        assert_eq!(long("(?=", 1000), refused);
        assert_eq!(long("(?!a)b", 700), refused, "each piece is compiled by itself");
        let deep = format!("{}a{}", "(".repeat(201), ")".repeat(201));
        assert_eq!(KeyPattern::new(deep.as_bytes()).err(), refused);
        assert_eq!(long("ab|", 1000), None);
    }
}

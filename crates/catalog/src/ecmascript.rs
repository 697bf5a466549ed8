//! Reads an ECMAScript pattern as the peer's library does, and writes it in the words that both engines read alike.
//!
//! Every byte of the result is written here: literals as numbers, brackets as sets of bytes. So nothing that only our
//! engines know (inline flags, named groups, `\z`, `\p{..}`) gets through, and a pattern that the peer refuses is refused:
//! a removal by pattern must never mean more than its caller does.

use std::iter::Peekable;
use std::slice::Iter;

/// A pattern in the words of our engines.
#[derive(Debug)]
pub(crate) struct Translated {
    pub pattern: String,
    /// Whether it has look-ahead or back-references.
    pub looks_around: bool,
}

/// Groups inside groups.
const DEPTH_MAX: usize = 200;
/// The most that a quantifier may count.
const COUNT_MAX: u32 = 100_000;
/// A class by name: which bytes belong to it.
type Class = (&'static [u8], fn(u8) -> bool);

/// Name of a class of bytes that a bracket may hold as `[:name:]`, and what belongs to it.
const CLASSES: [Class; 15] = [
    (b"alpha", |b| b.is_ascii_alphabetic()),
    (b"digit", |b| b.is_ascii_digit()),
    (b"d", |b| b.is_ascii_digit()),
    (b"alnum", |b| b.is_ascii_alphanumeric()),
    (b"w", is_word),
    (b"upper", |b| b.is_ascii_uppercase()),
    (b"lower", |b| b.is_ascii_lowercase()),
    (b"space", is_space),
    (b"s", is_space),
    (b"blank", |b| b == b' ' || b == b'\t'),
    (b"cntrl", |b| b.is_ascii_control()),
    (b"punct", |b| b.is_ascii_punctuation()),
    (b"graph", |b| b.is_ascii_graphic()),
    (b"print", |b| b.is_ascii_graphic() || b == b' '),
    (b"xdigit", |b| b.is_ascii_hexdigit()),
];

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

fn is_space(byte: u8) -> bool {
    byte.is_ascii_whitespace() || byte == 0x0b
}

/// Writes a pattern anew; `None` for one that is no pattern.
pub(crate) fn translate(pattern: &[u8]) -> Option<Translated> {
    let mut reader = Reader {
        rest: pattern.iter().peekable(),
        out: String::with_capacity(pattern.len() * 2),
        open: Vec::new(),
        groups: 0,
        repeatable: false,
        quantified: false,
        stacked: false,
        looks_around: false,
    };
    while let Some(byte) = reader.rest.next() {
        reader.read(*byte)?;
    }
    // What is quantified twice means something else to the backtracking engine.
    let is_ambiguous = reader.looks_around && reader.stacked;
    let whole = reader.open.is_empty() && !is_ambiguous;
    whole.then_some(Translated { pattern: reader.out, looks_around: reader.looks_around })
}

/// A group that is open.
enum Open {
    /// Nothing more.
    Plain,
    /// It has a number.
    Numbered(u32),
    /// It looks ahead, and cannot be repeated.
    Ahead,
}

/// One thing in a bracket.
enum Term {
    Byte(u8),
    Set(Box<[bool; 256]>),
}

struct Reader<'p> {
    rest: Peekable<Iter<'p, u8>>,
    out: String,
    open: Vec<Open>,
    /// Numbered groups so far.
    groups: u32,
    /// Whether a quantifier may follow.
    repeatable: bool,
    /// What stands last is quantified already.
    quantified: bool,
    /// Something is quantified twice.
    stacked: bool,
    looks_around: bool,
}

impl Reader<'_> {
    fn read(&mut self, byte: u8) -> Option<()> {
        match byte {
            b'\\' => self.escape()?,
            b'(' => self.open()?,
            b')' => self.close()?,
            b'[' => self.bracket()?,
            b'|' | b'^' | b'$' => {
                self.out.push(char::from(byte));
                (self.repeatable, self.quantified) = (false, false);
            }
            b'*' | b'+' | b'?' => self.quantify(&char::from(byte).to_string())?,
            b'{' => {
                let counts = self.counts()?;
                self.quantify(&counts)?;
            }
            b'.' => self.atom("[^\\n\\r]"),
            _ => self.literal(byte),
        }
        Some(())
    }

    fn atom(&mut self, text: &str) {
        self.out.push_str(text);
        (self.repeatable, self.quantified) = (true, false);
    }

    fn literal(&mut self, byte: u8) {
        if byte.is_ascii_alphanumeric() {
            self.atom(char::from(byte).encode_utf8(&mut [0; 4]));
        } else {
            self.atom(&format!("\\x{byte:02X}"));
        }
    }

    fn next_is(&mut self, wanted: u8) -> bool {
        self.rest.next_if(|byte| **byte == wanted).is_some()
    }

    fn quantify(&mut self, text: &str) -> Option<()> {
        if !self.repeatable {
            return None;
        }
        self.out.push_str(text);
        if self.next_is(b'?') {
            self.out.push('?');
        }
        self.stacked |= std::mem::replace(&mut self.quantified, true);
        Some(())
    }

    /// What stands between braces, the first of which was read.
    fn counts(&mut self) -> Option<String> {
        let least = self.number()?;
        if self.next_is(b'}') {
            return Some(format!("{{{least}}}"));
        }
        if !self.next_is(b',') {
            return None;
        }
        if self.next_is(b'}') {
            return Some(format!("{{{least},}}"));
        }
        let most = self.number()?;
        (self.next_is(b'}') && most >= least).then(|| format!("{{{least},{most}}}"))
    }

    fn number(&mut self) -> Option<u32> {
        let mut number = None;
        while let Some(digit) = self.rest.next_if(|byte| byte.is_ascii_digit()) {
            let value = number.unwrap_or(0) * 10 + u32::from(digit - b'0');
            number = Some(value).filter(|value| *value <= COUNT_MAX);
            number?;
        }
        number
    }

    fn open(&mut self) -> Option<()> {
        let group = if !self.next_is(b'?') {
            self.groups += 1;
            self.out.push('(');
            Open::Numbered(self.groups)
        } else {
            let kind = *self.rest.next()?;
            self.out.push_str("(?");
            self.out.push(char::from(kind));
            match kind {
                b':' => Open::Plain,
                b'=' | b'!' => Open::Ahead,
                _ => return None,
            }
        };
        self.looks_around |= matches!(group, Open::Ahead);
        self.open.push(group);
        (self.repeatable, self.quantified) = (false, false);
        (self.open.len() <= DEPTH_MAX).then_some(())
    }

    fn close(&mut self) -> Option<()> {
        let group = self.open.pop()?;
        self.atom(")");
        self.repeatable = !matches!(group, Open::Ahead);
        Some(())
    }

    fn escape(&mut self) -> Option<()> {
        match *self.rest.peek()? {
            b'b' | b'B' => {
                let kind = char::from(*self.rest.next()?);
                self.atom(&format!("\\{kind}"));
                self.repeatable = false;
            }
            b'1'..=b'9' => {
                let number = self.number()?;
                let is_open = |group: &Open| matches!(group, Open::Numbered(open) if *open == number);
                if number > self.groups || self.open.iter().any(is_open) {
                    return None;
                }
                self.looks_around = true;
                // In a group of its own, so that no digit joins it.
                self.atom(&format!("(?:\\{number})"));
            }
            _ => match self.term_of_escape()? {
                Term::Byte(byte) => self.literal(byte),
                Term::Set(set) => self.atom(&text_of(&set)),
            },
        }
        Some(())
    }

    /// What an escape means, inside or outside a bracket; the backslash was read.
    fn term_of_escape(&mut self) -> Option<Term> {
        let byte = match *self.rest.next()? {
            class @ (b'd' | b'D' | b'w' | b'W' | b's' | b'S') => {
                let is_in = match class.to_ascii_lowercase() {
                    b'd' => |byte: u8| byte.is_ascii_digit(),
                    b'w' => is_word,
                    _ => is_space,
                };
                let wanted = class.is_ascii_lowercase();
                return Some(Term::Set(Box::new(std::array::from_fn(|byte| is_in(byte as u8) == wanted))));
            }
            b'0' => 0,
            b'f' => 0x0c,
            b'n' => b'\n',
            b'r' => b'\r',
            b't' => b'\t',
            b'v' => 0x0b,
            b'b' => 0x08,
            b'c' => *self.rest.next()? & 0x1f,
            b'x' => u8::try_from(self.hex(2)?).ok()?,
            b'u' => u8::try_from(self.hex(4)?).ok()?,
            b'1'..=b'9' => return None,
            other => other,
        };
        Some(Term::Byte(byte))
    }

    fn hex(&mut self, digits: u32) -> Option<u32> {
        (0..digits).try_fold(0, |value, _| Some(value * 16 + char::from(*self.rest.next()?).to_digit(16)?))
    }

    /// A bracket, whose first sign was read.
    fn bracket(&mut self) -> Option<()> {
        let negated = self.next_is(b'^');
        let mut set = [false; 256];
        // What a dash behind it would go with.
        let mut last: Option<Term> = None;
        loop {
            let byte = *self.rest.next()?;
            if byte == b']' {
                break;
            }
            let is_dash = byte == b'-' && self.rest.peek().is_some_and(|next| **next != b']');
            last = match (is_dash, last) {
                (true, Some(Term::Byte(first))) => {
                    let end = *self.rest.next()?;
                    let Term::Byte(end) = self.term(end)? else { return None };
                    if end < first {
                        return None;
                    }
                    set[usize::from(first)..=usize::from(end)].fill(true);
                    None
                }
                (true, Some(Term::Set(_))) => return None,
                _ => Some(self.term(byte)?),
            };
            match &last {
                Some(Term::Byte(byte)) => set[usize::from(*byte)] = true,
                Some(Term::Set(more)) => set.iter_mut().zip(more.iter()).for_each(|(has, more)| *has |= *more),
                None => {}
            }
        }
        if negated {
            set.iter_mut().for_each(|has| *has = !*has);
        }
        self.atom(&text_of(&set));
        Some(())
    }

    /// One thing of a bracket, whose first byte was read.
    fn term(&mut self, byte: u8) -> Option<Term> {
        match byte {
            b'\\' => self.term_of_escape(),
            b'[' => match self.rest.next_if(|kind| matches!(**kind, b':' | b'.' | b'=')) {
                None => Some(Term::Byte(b'[')),
                Some(kind) => self.named(*kind),
            },
            _ => Some(Term::Byte(byte)),
        }
    }

    /// `[:name:]`, `[.x.]` or `[=x=]`, from behind its second sign on.
    fn named(&mut self, kind: u8) -> Option<Term> {
        let mut name = Vec::new();
        while !(name.last() == Some(&kind) && self.next_is(b']')) {
            name.push(*self.rest.next()?);
            if name.len() > 16 {
                return None;
            }
        }
        name.pop();
        if kind != b':' {
            return if let [byte] = name[..] { Some(Term::Byte(byte)) } else { None };
        }
        let (_, is_in) = CLASSES.iter().find(|(of, _)| *of == name)?;
        Some(Term::Set(Box::new(std::array::from_fn(|byte| is_in(byte as u8)))))
    }
}

/// A set of bytes as both engines read it.
fn text_of(set: &[bool; 256]) -> String {
    let mut text = String::from("[");
    let mut at = 0;
    while at < set.len() {
        if !set[at] {
            at += 1;
            continue;
        }
        let end = set[at..].iter().position(|has| !has).map_or(set.len(), |len| at + len) - 1;
        text.push_str(&if end == at { format!("\\x{at:02X}") } else { format!("\\x{at:02X}-\\x{end:02X}") });
        at = end + 1;
    }
    if text.len() == 1 {
        text.push_str("^\\x00-\\xFF");
    }
    text.push(']');
    text
}

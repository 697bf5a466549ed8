//! Encoding of whole bodies: from a value in one call, or piece by piece while the pieces are found.

use crate::body::{HEAD_HAS_METAINFO, METAINFO_LITERAL, METAINFO_WIDTH_SHIFT};
use crate::writer::Mark;
use crate::{BodyType, EncodeError, Levels, Pack, SizeWidth, Writer};

/// Whether a body carries its type literal in clear. Receivers accept both.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Form {
    /// Without: smaller.
    #[default]
    Bare,
    /// With, as the peer's released builds send it.
    Literal,
}

/// The parts of a prefix that depend on the values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Layout {
    width: SizeWidth,
    /// Bytes of the total length: 0, 2, 4 or 8.
    total: usize,
}

impl Layout {
    fn first(ty: &BodyType, width: SizeWidth) -> Layout {
        Layout { width, total: if ty.levels().is_empty() { 0 } else { 2 } }
    }

    /// The layout that a body must have: the smallest width, and the smallest total length that holds itself.
    fn needed(self, ty: &BodyType, longest: u64, body_len: usize) -> Layout {
        let width = SizeWidth::for_count(longest);
        if ty.levels().is_empty() {
            return Layout { width, total: 0 };
        }
        let rest = body_len - self.total;
        let total = match () {
            () if rest + 2 < 1 << 16 => 2,
            () if rest + 4 < 1 << 32 => 4,
            () => 8,
        };
        Layout { width, total }
    }

    fn has_metainfo(self, form: Form) -> bool {
        form == Form::Literal || self.total != 0 || self.width != SizeWidth::One
    }

    fn write_prefix(self, ty: &BodyType, form: Form, out: &mut Vec<u8>) {
        let has_metainfo = self.has_metainfo(form);
        let head = ty.code() | if has_metainfo { HEAD_HAS_METAINFO } else { 0 };
        let literal = if form == Form::Literal { METAINFO_LITERAL } else { 0 };
        let total = self.total.trailing_zeros() as u8 & if self.total == 0 { 0 } else { 3 };
        // Head, metainfo, and the longest total length, of which as much is taken as there is.
        let mut prefix = [0; 4 + 1 + 8];
        prefix[..4].copy_from_slice(&head.to_le_bytes());
        prefix[4] = total | literal | self.width.selector() << METAINFO_WIDTH_SHIFT;
        out.extend_from_slice(&prefix[..if has_metainfo { 5 + self.total } else { 4 }]);
        if form == Form::Literal {
            out.extend_from_slice(ty.literal());
            out.push(0);
        }
    }

    /// Fills in the total length of the body that starts at `start` and ends where `out` ends.
    fn patch_total(self, start: usize, out: &mut [u8]) {
        let Some(body) = out.get_mut(start..) else { return };
        let len = body.len() as u64;
        if let Some(field) = body.get_mut(5..5 + self.total) {
            field.copy_from_slice(&len.to_le_bytes()[..self.total]);
        }
    }
}

/// Appends the body of `value` to `out`; nothing for the arguments of a function that has none.
///
/// # Errors
/// When the value does not exist in the generation, or the body is longer than 4 GiB. `out` is then as before.
pub fn encode<T: Pack + ?Sized>(value: &T, ty: &BodyType, form: Form, out: &mut Vec<u8>) -> Result<(), EncodeError> {
    if ty.is_absent() {
        return Ok(());
    }
    let start = out.len();
    let mut layout = Layout::first(ty, SizeWidth::One);
    // Widths only settle: the second pass has the width of the longest count, the third the right total length.
    loop {
        layout.write_prefix(ty, form, out);
        let longest = match write_value(value, ty, layout.width, out) {
            Ok(longest) => longest,
            Err(error) => {
                out.truncate(start);
                return Err(error);
            }
        };
        let needed = layout.needed(ty, longest, out.len() - start);
        if needed == layout {
            break;
        }
        layout = needed;
        out.truncate(start);
    }
    layout.patch_total(start, out);
    check_length(start, out)
}

fn write_value<T: Pack + ?Sized>(
    value: &T,
    ty: &BodyType,
    width: SizeWidth,
    out: &mut Vec<u8>,
) -> Result<u64, EncodeError> {
    let mut writer = Writer::new(out, ty.version(), width);
    value.write(&mut writer);
    for level in ty.levels().iter() {
        value.write_compat(&mut writer, level);
    }
    let longest = writer.longest();
    writer.failure().map_or(Ok(longest), Err)
}

fn check_length(start: usize, out: &mut Vec<u8>) -> Result<(), EncodeError> {
    let len = out.len() - start;
    if u32::try_from(len).is_ok() {
        return Ok(());
    }
    out.truncate(start);
    Err(EncodeError::TooLong { len })
}

/// Buffers of a [`BodyWriter`], kept by its owner so that they are allocated once.
#[derive(Debug, Default)]
pub struct Scratch {
    marks: Vec<Mark>,
    tail: Vec<u8>,
    tail_marks: Vec<Mark>,
}

/// Where a list's size stands until it is known.
#[derive(Debug)]
#[must_use = "a list that is not closed keeps size 0"]
pub struct OpenList {
    mark: usize,
    at: usize,
}

/// Writes one body piece by piece: the pieces are found while writing (a catalog lookup per key), and no value of the
/// whole type is ever built.
///
/// The caller must write exactly the members of the type, in order. Types with compatible members of more than one
/// level are not supported (no reply has them); use [`encode`].
#[derive(Debug)]
pub struct BodyWriter<'o> {
    out: &'o mut Vec<u8>,
    scratch: &'o mut Scratch,
    ty: &'o BodyType,
    form: Form,
    layout: Layout,
    level: Option<u8>,
    start: usize,
    payload: usize,
    longest: u64,
    failure: Option<EncodeError>,
}

impl<'o> BodyWriter<'o> {
    /// Begins a body at the end of `out`. `expected` is the largest count that will probably occur (the length of the
    /// batch): right, it saves a copy; wrong, it costs one.
    pub fn begin(
        ty: &'o BodyType,
        form: Form,
        expected: usize,
        out: &'o mut Vec<u8>,
        scratch: &'o mut Scratch,
    ) -> BodyWriter<'o> {
        debug_assert!(ty.levels().iter().count() <= 1, "compatible members of several levels");
        scratch.marks.clear();
        scratch.tail.clear();
        scratch.tail_marks.clear();
        let layout = Layout::first(ty, SizeWidth::for_count(expected as u64));
        let start = out.len();
        layout.write_prefix(ty, form, out);
        let payload = out.len();
        let level = ty.levels().iter().next();
        BodyWriter { out, scratch, ty, form, layout, level, start, payload, longest: 0, failure: None }
    }

    /// Levels of compatible members of the type.
    pub fn levels(&self) -> Levels {
        self.ty.levels()
    }

    /// Generation of the wire.
    pub fn version(&self) -> crate::Version {
        self.ty.version()
    }

    /// Appends a member.
    pub fn put<T: Pack + ?Sized>(&mut self, value: &T) {
        let mut writer = Writer::with_marks(self.out, self.ty.version(), self.layout.width, &mut self.scratch.marks);
        value.write(&mut writer);
        self.longest = self.longest.max(writer.longest());
        if let Some(failure) = writer.failure() {
            self.failure.get_or_insert(failure);
        }
        if let Some(level) = self.level
            && T::levels(self.ty.version()).contains(level)
        {
            self.put_tail(|writer| value.write_compat(writer, level));
        }
    }

    /// Appends a compatible member of the struct that is being written, after its other members.
    /// Nothing happens in generations without it.
    pub fn put_compat<T: Pack>(&mut self, value: &Option<T>) {
        if self.level.is_some() {
            self.put_tail(|writer| value.write(writer));
        }
    }

    fn put_tail(&mut self, write: impl FnOnce(&mut Writer<'_>)) {
        let scratch = &mut *self.scratch;
        let mut writer =
            Writer::with_marks(&mut scratch.tail, self.ty.version(), self.layout.width, &mut scratch.tail_marks);
        write(&mut writer);
        self.longest = self.longest.max(writer.longest());
    }

    /// Begins the value of an `expected`; the members of the value follow.
    pub fn ok(&mut self) {
        self.out.push(1);
    }

    /// Appends an `expected` that holds an error.
    pub fn err<E: Pack>(&mut self, error: &E) {
        self.out.push(0);
        self.put(error);
    }

    /// Appends the size of a list; its elements follow.
    pub fn list(&mut self, count: usize) {
        let mut writer = Writer::with_marks(self.out, self.ty.version(), self.layout.width, &mut self.scratch.marks);
        writer.size(count);
        self.longest = self.longest.max(count as u64);
    }

    /// Begins a list whose size is not known yet.
    pub fn open_list(&mut self) -> OpenList {
        let open = OpenList { mark: self.scratch.marks.len(), at: self.out.len() };
        self.list(0);
        open
    }

    /// Tells the size of a list after its elements.
    pub fn close_list(&mut self, open: OpenList, count: usize) {
        let count = count as u64;
        self.longest = self.longest.max(count);
        if let Some(mark) = self.scratch.marks.get_mut(open.mark) {
            mark.count = count;
        }
        let width = self.layout.width.bytes();
        if let Some(field) = self.out.get_mut(open.at..open.at + width) {
            field.copy_from_slice(&count.to_le_bytes()[..width]);
        }
    }

    /// Ends the body and gives the buffer back.
    ///
    /// The result is an error as for [`encode`]; the buffer then ends where the body began.
    pub fn finish(mut self) -> (&'o mut Vec<u8>, Result<(), EncodeError>) {
        let result = self.close();
        (self.out, result)
    }

    fn close(&mut self) -> Result<(), EncodeError> {
        if let Some(failure) = self.failure.take() {
            self.out.truncate(self.start);
            return Err(failure);
        }
        let offset = self.out.len();
        self.out.extend_from_slice(&self.scratch.tail);
        let mut layout = self.layout;
        let needed = layout.needed(self.ty, self.longest, self.out.len() - self.start);
        if needed != layout {
            let moved = self.scratch.tail_marks.iter().map(|m| Mark { at: m.at + offset, ..*m });
            self.scratch.marks.extend(moved);
            layout = self.widen(needed);
        }
        layout.patch_total(self.start, self.out);
        check_length(self.start, self.out)
    }

    /// Writes the body again with another prefix and another size width; rare.
    fn widen(&mut self, mut layout: Layout) -> Layout {
        let old = self.out.split_off(self.start);
        loop {
            layout.write_prefix(self.ty, self.form, self.out);
            let mut from = self.payload - self.start;
            for mark in &self.scratch.marks {
                let at = mark.at - self.start;
                self.out.extend_from_slice(old.get(from..at).unwrap_or_default());
                self.out.extend_from_slice(&mark.count.to_le_bytes()[..layout.width.bytes()]);
                from = at + self.layout.width.bytes();
            }
            self.out.extend_from_slice(old.get(from..).unwrap_or_default());
            let needed = layout.needed(self.ty, self.longest, self.out.len() - self.start);
            if needed == layout {
                return layout;
            }
            layout = needed;
            self.out.truncate(self.start);
        }
    }
}

//! Encodings of the basic types.

use crate::{DecodeError, Levels, Literal, MemoryCopied, Pack, Reader, Unpack, Version, Writer};

macro_rules! number {
    ($($ty:ty, $name:literal, $id:literal;)*) => {$(
        impl Pack for $ty {
            const MIN_BYTES: usize = size_of::<$ty>();
            fn literal(_: Version, out: &mut Literal) {
                out.push($id);
            }
            fn describe(_: Version, out: &mut String) {
                out.push_str($name);
            }
            #[inline]
            fn write(&self, w: &mut Writer<'_>) {
                w.bytes(&self.to_le_bytes());
            }
        }
        impl<'a> Unpack<'a> for $ty {
            #[inline]
            fn read(r: &mut Reader<'a>) -> Result<Self, DecodeError> {
                Ok(<$ty>::from_le_bytes(r.array()?))
            }
            #[inline]
            fn skip_sequence(r: &mut Reader<'a>, count: usize) -> Result<(), DecodeError> {
                r.take(count.saturating_mul(size_of::<$ty>())).map(|_| ())
            }
        }
        impl MemoryCopied for $ty {
            const SIZE: usize = size_of::<$ty>();
            const ALIGN: usize = align_of::<$ty>();
        }
    )*};
}

number! {
    i32, "i32", 0x01;
    u32, "u32", 0x02;
    i64, "i64", 0x03;
    u64, "u64", 0x04;
    i8, "i8", 0x05;
    i16, "i16", 0x07;
    u16, "u16", 0x08;
    f32, "f32", 0x11;
    f64, "f64", 0x12;
}

/// A sequence of `u8` is a string here, because keys are the common case; for a true `vector<u8>` see [`U8List`].
impl Pack for u8 {
    const MIN_BYTES: usize = 1;
    fn literal(_: Version, out: &mut Literal) {
        out.push(0x06);
    }
    fn describe(_: Version, out: &mut String) {
        out.push_str("u8");
    }
    #[inline]
    fn write(&self, w: &mut Writer<'_>) {
        w.byte(*self);
    }
    fn sequence_literal(_: Version, out: &mut Literal) {
        out.push(Literal::STRING);
        out.push(Literal::CHAR);
    }
    fn describe_sequence(_: Version, out: &mut String) {
        out.push_str("string");
    }
    #[inline]
    fn write_sequence(items: &[u8], w: &mut Writer<'_>) {
        w.bytes(items);
    }
}

impl<'a> Unpack<'a> for u8 {
    const COUNTED: bool = false;
    #[inline]
    fn read(r: &mut Reader<'a>) -> Result<Self, DecodeError> {
        r.byte()
    }
    #[inline]
    fn read_sequence(r: &mut Reader<'a>, count: usize) -> Result<Vec<u8>, DecodeError> {
        Ok(r.take(count)?.to_vec())
    }
    #[inline]
    fn skip_sequence(r: &mut Reader<'a>, count: usize) -> Result<(), DecodeError> {
        r.take(count).map(|_| ())
    }
}

impl MemoryCopied for u8 {
    const SIZE: usize = 1;
    const ALIGN: usize = 1;
}

impl Pack for bool {
    const MIN_BYTES: usize = 1;
    fn literal(_: Version, out: &mut Literal) {
        out.push(0x0b);
    }
    fn describe(_: Version, out: &mut String) {
        out.push_str("bool");
    }
    #[inline]
    fn write(&self, w: &mut Writer<'_>) {
        w.byte(u8::from(*self));
    }
}

impl<'a> Unpack<'a> for bool {
    #[inline]
    fn read(r: &mut Reader<'a>) -> Result<Self, DecodeError> {
        Ok(r.byte()? != 0)
    }
}

impl Pack for () {
    const MIN_BYTES: usize = 0;
    fn literal(_: Version, out: &mut Literal) {
        out.push(Literal::VOID);
    }
    fn describe(_: Version, out: &mut String) {
        out.push_str("void");
    }
    #[inline]
    fn write(&self, _: &mut Writer<'_>) {}
}

impl<'a> Unpack<'a> for () {
    fn read(_: &mut Reader<'a>) -> Result<Self, DecodeError> {
        Ok(())
    }
}

impl Pack for str {
    const MIN_BYTES: usize = 1;
    fn literal(version: Version, out: &mut Literal) {
        u8::sequence_literal(version, out);
    }
    fn describe(version: Version, out: &mut String) {
        u8::describe_sequence(version, out);
    }
    #[inline]
    fn write(&self, w: &mut Writer<'_>) {
        w.size(self.len());
        w.bytes(self.as_bytes());
    }
}

impl Pack for String {
    const MIN_BYTES: usize = 1;
    fn literal(version: Version, out: &mut Literal) {
        str::literal(version, out);
    }
    fn describe(version: Version, out: &mut String) {
        str::describe(version, out);
    }
    #[inline]
    fn write(&self, w: &mut Writer<'_>) {
        self.as_str().write(w);
    }
}

impl<'a> Unpack<'a> for &'a str {
    #[inline]
    fn read(r: &mut Reader<'a>) -> Result<Self, DecodeError> {
        let at = r.position();
        std::str::from_utf8(r.string()?).map_err(|_| DecodeError::NotUtf8 { at })
    }
}

impl<'a> Unpack<'a> for String {
    #[inline]
    fn read(r: &mut Reader<'a>) -> Result<Self, DecodeError> {
        <&str>::read(r).map(str::to_owned)
    }
}

impl<'a> Unpack<'a> for &'a [u8] {
    #[inline]
    fn read(r: &mut Reader<'a>) -> Result<Self, DecodeError> {
        r.string()
    }
}

impl<T: Pack + ?Sized> Pack for &T {
    const MIN_BYTES: usize = T::MIN_BYTES;
    fn literal(version: Version, out: &mut Literal) {
        T::literal(version, out);
    }
    fn describe(version: Version, out: &mut String) {
        T::describe(version, out);
    }
    #[inline]
    fn levels(version: Version) -> Levels {
        T::levels(version)
    }
    #[inline]
    fn write(&self, w: &mut Writer<'_>) {
        T::write(self, w);
    }
    #[inline]
    fn write_compat(&self, w: &mut Writer<'_>, level: u8) {
        T::write_compat(self, w, level);
    }
}

impl<T: Pack> Pack for [T] {
    const MIN_BYTES: usize = 1;
    fn literal(version: Version, out: &mut Literal) {
        T::sequence_literal(version, out);
    }
    fn describe(version: Version, out: &mut String) {
        T::describe_sequence(version, out);
    }
    #[inline]
    fn levels(version: Version) -> Levels {
        T::levels(version)
    }
    #[inline]
    fn write(&self, w: &mut Writer<'_>) {
        w.size(self.len());
        T::write_sequence(self, w);
    }
    #[inline]
    fn write_compat(&self, w: &mut Writer<'_>, level: u8) {
        if T::levels(w.version()).contains(level) {
            for item in self {
                item.write_compat(w, level);
            }
        }
    }
}

impl<T: Pack> Pack for Vec<T> {
    const MIN_BYTES: usize = 1;
    fn literal(version: Version, out: &mut Literal) {
        <[T]>::literal(version, out);
    }
    fn describe(version: Version, out: &mut String) {
        <[T]>::describe(version, out);
    }
    #[inline]
    fn levels(version: Version) -> Levels {
        T::levels(version)
    }
    #[inline]
    fn write(&self, w: &mut Writer<'_>) {
        self.as_slice().write(w);
    }
    #[inline]
    fn write_compat(&self, w: &mut Writer<'_>, level: u8) {
        self.as_slice().write_compat(w, level);
    }
}

impl<'a, T: Unpack<'a>> Unpack<'a> for Vec<T> {
    #[inline]
    fn read(r: &mut Reader<'a>) -> Result<Self, DecodeError> {
        let count = if T::COUNTED {
            r.count(T::MIN_BYTES)?
        } else {
            let count = r.size()?;
            let remaining = r.remaining();
            usize::try_from(count)
                .ok()
                .filter(|n| *n <= remaining)
                .ok_or(DecodeError::CountBeyondBody { count, remaining })?
        };
        T::read_sequence(r, count)
    }
    #[inline]
    fn read_compat(&mut self, r: &mut Reader<'a>, level: u8) -> Result<(), DecodeError> {
        if T::levels(r.version()).contains(level) {
            for item in self {
                item.read_compat(r, level)?;
            }
        }
        Ok(())
    }
}

impl<T: Pack, const N: usize> Pack for [T; N] {
    const MIN_BYTES: usize = T::MIN_BYTES * N;
    fn literal(version: Version, out: &mut Literal) {
        out.push(Literal::ARRAY);
        T::literal(version, out);
        out.push_size(N);
    }
    fn describe(version: Version, out: &mut String) {
        out.push_str("array<");
        T::describe(version, out);
        out.push_str(&format!(",{N}>"));
    }
    #[inline]
    fn write(&self, w: &mut Writer<'_>) {
        T::write_sequence(self, w);
    }
}

impl<'a, T: Unpack<'a> + Copy + Default, const N: usize> Unpack<'a> for [T; N] {
    #[inline]
    fn read(r: &mut Reader<'a>) -> Result<Self, DecodeError> {
        let mut items = [T::default(); N];
        for item in &mut items {
            *item = T::read(r)?;
        }
        Ok(items)
    }
}

impl<T: MemoryCopied, const N: usize> MemoryCopied for [T; N] {
    const SIZE: usize = T::SIZE * N;
    const ALIGN: usize = T::ALIGN;
}

impl<T: Pack> Pack for Option<T> {
    const MIN_BYTES: usize = 1;
    fn literal(version: Version, out: &mut Literal) {
        out.push(Literal::OPTIONAL);
        T::literal(version, out);
    }
    fn describe(version: Version, out: &mut String) {
        out.push_str("optional<");
        T::describe(version, out);
        out.push('>');
    }
    #[inline]
    fn levels(version: Version) -> Levels {
        T::levels(version)
    }
    #[inline]
    fn write(&self, w: &mut Writer<'_>) {
        w.byte(u8::from(self.is_some()));
        if let Some(value) = self {
            value.write(w);
        }
    }
    #[inline]
    fn write_compat(&self, w: &mut Writer<'_>, level: u8) {
        if let Some(value) = self {
            value.write_compat(w, level);
        }
    }
}

impl<'a, T: Unpack<'a>> Unpack<'a> for Option<T> {
    #[inline]
    fn read(r: &mut Reader<'a>) -> Result<Self, DecodeError> {
        if r.byte()? == 0 { Ok(None) } else { T::read(r).map(Some) }
    }
    #[inline]
    fn read_compat(&mut self, r: &mut Reader<'a>, level: u8) -> Result<(), DecodeError> {
        self.as_mut().map_or(Ok(()), |value| value.read_compat(r, level))
    }
}

/// The peer's `expected`.
impl<T: Pack, E: Pack> Pack for Result<T, E> {
    const MIN_BYTES: usize = 1;
    fn literal(version: Version, out: &mut Literal) {
        out.push(Literal::EXPECTED);
        T::literal(version, out);
        E::literal(version, out);
    }
    fn describe(version: Version, out: &mut String) {
        out.push_str("expected<");
        T::describe(version, out);
        out.push(',');
        E::describe(version, out);
        out.push('>');
    }
    #[inline]
    fn levels(version: Version) -> Levels {
        T::levels(version).or(E::levels(version))
    }
    #[inline]
    fn write(&self, w: &mut Writer<'_>) {
        w.byte(u8::from(self.is_ok()));
        match self {
            Ok(value) => value.write(w),
            Err(error) => error.write(w),
        }
    }
    #[inline]
    fn write_compat(&self, w: &mut Writer<'_>, level: u8) {
        match self {
            Ok(value) => value.write_compat(w, level),
            Err(error) => error.write_compat(w, level),
        }
    }
}

impl<'a, T: Unpack<'a>, E: Unpack<'a>> Unpack<'a> for Result<T, E> {
    #[inline]
    fn read(r: &mut Reader<'a>) -> Result<Self, DecodeError> {
        Ok(if r.byte()? == 0 { Err(E::read(r)?) } else { Ok(T::read(r)?) })
    }
    #[inline]
    fn read_compat(&mut self, r: &mut Reader<'a>, level: u8) -> Result<(), DecodeError> {
        match self {
            Ok(value) => value.read_compat(r, level),
            Err(error) => error.read_compat(r, level),
        }
    }
}

/// A `std::tuple`, never copied as memory.
impl<A: Pack, B: Pack> Pack for (A, B) {
    const MIN_BYTES: usize = A::MIN_BYTES + B::MIN_BYTES;
    fn literal(version: Version, out: &mut Literal) {
        out.push(Literal::STRUCT);
        A::literal(version, out);
        B::literal(version, out);
        out.push(Literal::END);
    }
    fn describe(version: Version, out: &mut String) {
        out.push_str("tuple<");
        A::describe(version, out);
        out.push(',');
        B::describe(version, out);
        out.push('>');
    }
    #[inline]
    fn levels(version: Version) -> Levels {
        A::levels(version).or(B::levels(version))
    }
    #[inline]
    fn write(&self, w: &mut Writer<'_>) {
        self.0.write(w);
        self.1.write(w);
    }
    #[inline]
    fn write_compat(&self, w: &mut Writer<'_>, level: u8) {
        self.0.write_compat(w, level);
        self.1.write_compat(w, level);
    }
}

impl<'a, A: Unpack<'a>, B: Unpack<'a>> Unpack<'a> for (A, B) {
    #[inline]
    fn read(r: &mut Reader<'a>) -> Result<Self, DecodeError> {
        Ok((A::read(r)?, B::read(r)?))
    }
    #[inline]
    fn read_compat(&mut self, r: &mut Reader<'a>, level: u8) -> Result<(), DecodeError> {
        self.0.read_compat(r, level)?;
        self.1.read_compat(r, level)
    }
}

/// A map, in the order of the wire (which says nothing).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PackMap<K, V>(pub Vec<(K, V)>);

impl<K, V> Default for PackMap<K, V> {
    fn default() -> Self {
        PackMap(Vec::new())
    }
}

impl<K: Pack, V: Pack> Pack for PackMap<K, V> {
    const MIN_BYTES: usize = 1;
    fn literal(version: Version, out: &mut Literal) {
        out.push(Literal::MAP);
        K::literal(version, out);
        V::literal(version, out);
    }
    fn describe(version: Version, out: &mut String) {
        out.push_str("map<");
        K::describe(version, out);
        out.push(',');
        V::describe(version, out);
        out.push('>');
    }
    #[inline]
    fn levels(version: Version) -> Levels {
        K::levels(version).or(V::levels(version))
    }
    #[inline]
    fn write(&self, w: &mut Writer<'_>) {
        self.0.write(w);
    }
    #[inline]
    fn write_compat(&self, w: &mut Writer<'_>, level: u8) {
        self.0.write_compat(w, level);
    }
}

impl<'a, K: Unpack<'a>, V: Unpack<'a>> Unpack<'a> for PackMap<K, V> {
    #[inline]
    fn read(r: &mut Reader<'a>) -> Result<Self, DecodeError> {
        Vec::read(r).map(PackMap)
    }
    #[inline]
    fn read_compat(&mut self, r: &mut Reader<'a>, level: u8) -> Result<(), DecodeError> {
        self.0.read_compat(r, level)
    }
}

macro_rules! bytes_with_literal {
    ($(#[$doc:meta])* $name:ident, $element:literal, $text:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct $name<'a>(pub &'a [u8]);

        impl Pack for $name<'_> {
            const MIN_BYTES: usize = 1;
            fn literal(_: Version, out: &mut Literal) {
                out.push(Literal::SEQUENCE);
                out.push($element);
            }
            fn describe(_: Version, out: &mut String) {
                out.push_str($text);
            }
            #[inline]
            fn write(&self, w: &mut Writer<'_>) {
                self.0.write(w);
            }
        }

        impl<'a> Unpack<'a> for $name<'a> {
            #[inline]
            fn read(r: &mut Reader<'a>) -> Result<Self, DecodeError> {
                r.string().map($name)
            }
        }
    };
}

bytes_with_literal! {
    /// A span of `char`: the bytes of a string with the literal of a sequence.
    CharSpan, 0x0c, "string-like<char>"
}
bytes_with_literal! {
    /// A true `vector<u8>`.
    U8List, 0x06, "vector<u8>"
}

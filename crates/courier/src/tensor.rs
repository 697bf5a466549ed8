//! What a tensor is: a type and a shape, in the 40 bytes that the peer's receiver looks for.
//!
//! ```text
//! u32 type | u32 dimensions | i64 x 4 sizes, unused ones 0        (all little endian)
//! ```
//! With more than four dimensions the list of sizes is as long as needed; only we read that.

/// Bytes of a head of up to four dimensions.
pub const HEAD_BYTES: usize = 40;

/// Dimensions that the peer reads.
const PEER_DIMENSIONS: usize = 4;
/// More than any library makes.
const MAX_DIMENSIONS: usize = 64;

/// Type of the elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dtype(u32);

/// Number, name, bytes of one element. The peer knows the numbers up to 9.
const DTYPES: &[(u32, &str, u64)] = &[
    (1, "float16", 2),
    (2, "float32", 4),
    (3, "float64", 8),
    (4, "int8", 1),
    (5, "int16", 2),
    (6, "int32", 4),
    (7, "int64", 8),
    (8, "uint8", 1),
    (9, "bool", 1),
    (10, "bfloat16", 2),
    (11, "uint16", 2),
    (12, "uint32", 4),
    (13, "uint64", 8),
    (14, "float8_e4m3fn", 1),
    (15, "float8_e5m2", 1),
    (16, "complex64", 8),
    (17, "complex128", 16),
];

/// The last number that the peer knows.
const PEER_LAST: u32 = 9;

impl Dtype {
    /// The type of this name, with or without the library's prefix (`torch.float32`, `float32`).
    pub fn named(name: &str) -> Option<Dtype> {
        let name = name.rsplit('.').next().unwrap_or(name);
        DTYPES.iter().find(|(_, known, _)| *known == name).map(|(number, ..)| Dtype(*number))
    }

    fn row(self) -> (&'static str, u64) {
        DTYPES.iter().find(|(number, ..)| *number == self.0).map_or(("unknown", 1), |(_, name, bytes)| (name, *bytes))
    }

    /// Its name without a prefix.
    pub fn name(self) -> &'static str {
        self.row().0
    }

    /// Bytes of one element.
    pub fn bytes(self) -> u64 {
        self.row().1
    }
}

/// Type and shape.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorHead {
    /// Of the elements.
    pub dtype: Dtype,
    /// Sizes of the dimensions; none for a single number.
    pub shape: Vec<u64>,
}

impl TensorHead {
    /// Bytes of all elements; `None` when there are too many to count.
    pub fn data_bytes(&self) -> Option<u64> {
        self.shape.iter().try_fold(self.dtype.bytes(), |bytes, size| bytes.checked_mul(*size))
    }

    /// The head as bytes; `None` for a shape that cannot be written.
    pub fn to_bytes(&self) -> Option<Vec<u8>> {
        if self.shape.len() > MAX_DIMENSIONS {
            return None;
        }
        let mut out = Vec::with_capacity(HEAD_BYTES);
        out.extend_from_slice(&self.dtype.0.to_le_bytes());
        out.extend_from_slice(&(self.shape.len() as u32).to_le_bytes());
        for size in &self.shape {
            out.extend_from_slice(&i64::try_from(*size).ok()?.to_le_bytes());
        }
        out.resize(out.len().max(HEAD_BYTES), 0);
        Some(out)
    }

    /// A whole body that is a head of ours.
    pub fn from_body(body: &[u8]) -> Option<TensorHead> {
        let dimensions = number(body, 4)? as usize;
        let expected = HEAD_BYTES.max(8 + 8 * dimensions.min(MAX_DIMENSIONS));
        if dimensions > MAX_DIMENSIONS || body.len() != expected {
            return None;
        }
        Self::parse(body, dimensions)
    }

    /// The head in front of `bytes` as the peer's programs put it there: types and dimensions that the peer knows, and
    /// exactly as many bytes behind it as it says.
    pub fn in_front_of(bytes: &[u8]) -> Option<TensorHead> {
        let (front, rest) = bytes.split_at_checked(HEAD_BYTES)?;
        let dimensions = number(front, 4)? as usize;
        if dimensions > PEER_DIMENSIONS || number(front, 0)? > PEER_LAST {
            return None;
        }
        Self::parse(front, dimensions).filter(|head| head.data_bytes() == Some(rest.len() as u64))
    }

    fn parse(bytes: &[u8], dimensions: usize) -> Option<TensorHead> {
        let dtype = number(bytes, 0).filter(|number| DTYPES.iter().any(|(known, ..)| known == number)).map(Dtype)?;
        let sizes = bytes.get(8..)?.chunks_exact(8).take(dimensions);
        let shape = sizes.map(|size| u64::try_from(i64::from_le_bytes(*size.first_chunk()?)).ok());
        Some(TensorHead { dtype, shape: shape.collect::<Option<_>>()? })
    }
}

fn number(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn head(name: &str, shape: &[u64]) -> TensorHead {
        TensorHead { dtype: Dtype::named(name).unwrap(), shape: shape.to_vec() }
    }

    #[test]
    fn names_with_and_without_prefix() {
        assert_eq!(Dtype::named("torch.float32"), Dtype::named("float32"));
        assert_eq!(Dtype::named("torch.bfloat16").map(Dtype::bytes), Some(2));
        assert_eq!(Dtype::named("torch.nonsense"), None);
        assert_eq!(Dtype::named("bool").map(Dtype::name), Some("bool"));
    }

    #[test]
    fn a_head_in_front_needs_its_exact_bytes() {
        let mut bytes = head("float32", &[2, 2]).to_bytes().unwrap();
        assert_eq!(bytes.len(), HEAD_BYTES);
        assert_eq!(TensorHead::in_front_of(&bytes), None, "16 bytes are missing");
        bytes.extend_from_slice(&[7; 16]);
        assert_eq!(TensorHead::in_front_of(&bytes), Some(head("float32", &[2, 2])));
        bytes.push(7);
        assert_eq!(TensorHead::in_front_of(&bytes), None, "one byte too many");
        let single = [head("int64", &[]).to_bytes().unwrap(), vec![0; 8]].concat();
        assert_eq!(TensorHead::in_front_of(&single), Some(head("int64", &[])));
        let own = [head("bfloat16", &[1]).to_bytes().unwrap(), vec![0; 2]].concat();
        assert_eq!(TensorHead::in_front_of(&own), None, "a type that the peer does not know");
    }

    proptest! {
        #[test]
        fn heads_read_back(number in 0..DTYPES.len(), shape in prop::collection::vec(0u64..1000, 0..20)) {
            let head = TensorHead { dtype: Dtype(DTYPES[number].0), shape };
            prop_assert_eq!(TensorHead::from_body(&head.to_bytes().unwrap()), Some(head));
        }

        #[test]
        fn no_bytes_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = (TensorHead::from_body(&bytes), TensorHead::in_front_of(&bytes));
        }
    }
}

//! What the derive promises, on types made for it.

use proptest::prelude::*;
use yb_pack::{
    BodyType, DecodeError, EncodeError, Form, Levels, Limits, List, Pack, PackMap, Unpack, Version, decode, encode,
};

const OLD: Version = Version(1);
const NEW: Version = Version(2);

#[derive(Clone, Copy, Debug, Default, PartialEq, Pack)]
#[pack(transparent)]
struct Action(u8);

impl From<bool> for Action {
    fn from(on: bool) -> Self {
        Action(u8::from(on))
    }
}

impl From<Action> for bool {
    fn from(action: Action) -> Self {
        action.0 == 1
    }
}

#[derive(Clone, Debug, PartialEq, Pack)]
#[pack(memory_copied)]
struct Image {
    head: u8,
    wide: u64,
    tail: u16,
}

#[derive(Clone, Debug, PartialEq, Pack)]
struct Part {
    name: String,
    #[pack(since = NEW, compatible = 2)]
    second: Option<Vec<String>>,
    #[pack(since = NEW, compatible = 1)]
    first: Option<u64>,
}

#[derive(Clone, Debug, PartialEq, Pack)]
enum Place {
    Here(u64),
    #[pack(since = NEW)]
    There(String),
    Part(Part),
}

#[derive(Clone, Copy, Debug, PartialEq, Pack)]
#[pack(unwrapped_before = NEW)]
struct Meta<'a> {
    key: &'a [u8],
    #[pack(since = NEW)]
    sum: Option<u64>,
}

#[derive(Clone, Debug, PartialEq, Pack)]
struct Whole<'a> {
    #[pack(until = NEW, default = 7)]
    gone: u32,
    #[pack(was(bool, NEW))]
    action: Action,
    places: Vec<Place>,
    image: Image,
    metas: List<'a, Meta<'a>>,
    map: PackMap<u64, Result<(), i32>>,
    pair: (u8, [u16; 3]),
    part: Part,
}

#[derive(Clone, Debug, PartialEq, Pack)]
#[pack(args)]
struct OneOrTwo<'a> {
    key: &'a [u8],
    #[pack(since = NEW, default = b"default".as_slice())]
    tenant: &'a [u8],
}

fn literal<T: Pack>(version: Version) -> Vec<u8> {
    BodyType::of::<T>(version).literal().to_vec()
}

fn bytes<T: Pack>(value: &T, version: Version, form: Form) -> Vec<u8> {
    let mut out = Vec::new();
    encode(value, &BodyType::of::<T>(version), form, &mut out).expect("encodes");
    out
}

fn read<'a, T: Unpack<'a>>(body: &'a [u8], version: Version) -> Result<T, DecodeError> {
    decode(body, &BodyType::of::<T>(version), Limits::default())
}

#[test]
fn literals_follow_the_generation() {
    assert_eq!(literal::<OneOrTwo<'_>>(OLD), [0x80, 0x0c]);
    assert_eq!(literal::<OneOrTwo<'_>>(NEW), [0xfd, 0x80, 0x0c, 0x80, 0x0c, 0xff]);
    assert_eq!(literal::<Meta<'_>>(OLD), [0x80, 0x0c]);
    assert_eq!(literal::<Meta<'_>>(NEW), [0xfd, 0x80, 0x0c, 0x85, 0x04, 0xff]);
    assert_eq!(literal::<Place>(OLD), [0x86, 0x04, 0xfd, 0x80, 0x0c, 0xff, 0xff]);
    assert_eq!(literal::<Place>(NEW), [0x86, 0x04, 0x80, 0x0c, 0xfd, 0x80, 0x0c, 0xff, 0xff]);
    assert_eq!(literal::<Image>(OLD), [0xfd, 0x06, 0x04, 0x08, 0x89, 0x89, 0xff]);
    assert_eq!(literal::<[u16; 3]>(OLD), [0x81, 0x08, 0x84]);
    assert_eq!(BodyType::of::<Whole<'_>>(OLD).levels(), Levels::NONE);
    assert_eq!(BodyType::of::<Whole<'_>>(NEW).levels().iter().collect::<Vec<_>>(), [1, 2]);
}

#[test]
fn memory_images_have_zeros_in_their_padding_and_ignore_garbage_there() {
    let image = Image { head: 1, wide: 2, tail: 3 };
    let mut body = bytes(&image, OLD, Form::Bare);
    assert_eq!(body[4..], [1, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0]);
    body[5..12].fill(0xaa);
    body[22..28].fill(0xaa);
    assert_eq!(read::<Image>(&body, OLD), Ok(image));
}

#[test]
fn an_alternative_that_is_not_there_yet_fails_the_message() {
    let place = Place::There("x".into());
    let mut out = b"kept".to_vec();
    let error = encode(&place, &BodyType::of::<Place>(OLD), Form::Bare, &mut out).unwrap_err();
    assert_eq!(error, EncodeError::NoSuchAlternative { variant: "There", version: OLD });
    assert_eq!(out, b"kept");
    // Indices move: what is 2 now was 1.
    let part = Place::Part(Part { name: String::new(), second: None, first: None });
    assert_eq!(bytes(&part, OLD, Form::Bare)[4], 1);
    let new = bytes(&part, NEW, Form::Bare);
    // Head, metainfo, total length of two bytes, index.
    assert_eq!(new[7], 2);
    let gone = DecodeError::NoSuchAlternative { variant: "Place", index: 2 };
    let mut old = bytes(&part, OLD, Form::Bare);
    old[4] = 2;
    assert_eq!(read::<Place>(&old, OLD), Err(gone));
}

/// Values of level 1 come before those of level 2, whatever the order of the members.
#[test]
fn compatible_values_follow_by_level_and_are_optional() {
    let part = Part { name: "n".into(), second: Some(vec!["s".into()]), first: Some(9) };
    let body = bytes(&part, NEW, Form::Bare);
    let payload = &body[7..];
    assert_eq!(payload, [1, b'n', 1, 9, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, b's']);
    assert_eq!(u16::from_le_bytes([body[5], body[6]]) as usize, body.len());
    assert_eq!(read(&body, NEW), Ok(part.clone()));
    // A total length that ends early hides what follows it; a cut value is an error.
    let mut early = body.clone();
    early[5] = 9;
    assert_eq!(read::<Part>(&early, NEW), Ok(Part { second: None, first: None, ..part.clone() }));
    early[5] = 18;
    assert_eq!(read::<Part>(&early, NEW), Ok(Part { second: None, ..part.clone() }));
    assert!(matches!(read::<Part>(&body[..body.len() - 1], NEW), Err(DecodeError::Truncated { .. })));
    // An old reader skips the length and does not see the values.
    assert_eq!(read::<Part>(&body, OLD), Ok(Part { second: None, first: None, ..part }));
}

#[test]
fn counts_are_checked_before_anything_is_allocated() {
    let ty = BodyType::of::<Vec<u64>>(OLD);
    let mut body = (ty.code() | 1).to_le_bytes().to_vec();
    body.push(3 << 3);
    body.extend_from_slice(&u64::MAX.to_le_bytes());
    body.extend_from_slice(&[0; 64]);
    let error = DecodeError::CountBeyondBody { count: u64::MAX, remaining: 64 };
    assert_eq!(read::<Vec<u64>>(&body, OLD), Err(error));
    let many = bytes(&vec![1u64; 11], OLD, Form::Bare);
    let limits = Limits { max_elements: 10 };
    let error = DecodeError::TooManyElements { count: 11, limit: 10 };
    assert_eq!(decode::<Vec<u64>>(&many, &ty, limits), Err(error));
    // Bytes of a string are no elements.
    let text = bytes(&vec![1u8; 1000], OLD, Form::Bare);
    assert_eq!(decode::<Vec<u8>>(&text, &BodyType::of::<Vec<u8>>(OLD), limits), Ok(vec![1; 1000]));
}

#[test]
fn sizes_take_the_smallest_width_for_the_whole_message() {
    for (len, width) in [(0usize, 1usize), (255, 1), (256, 2), (65_535, 2), (65_536, 4)] {
        let value = (vec![b'x'; len], String::from("short"));
        let body = bytes(&value, OLD, Form::Bare);
        let head = if width == 1 { 4 } else { 5 };
        assert_eq!(body.len(), head + 2 * width + len + 5, "{len}");
        assert_eq!(read::<(Vec<u8>, String)>(&body, OLD).expect("decodes"), value);
    }
}

#[test]
fn lists_read_from_the_frame_and_from_slices_alike() {
    let keys: Vec<&[u8]> = vec![b"a", b"", b"ccc"];
    let list = List::from(&keys);
    let body = bytes(&list, OLD, Form::Literal);
    let back: List<'_, &[u8]> = read(&body, OLD).expect("decodes");
    assert_eq!((back.len(), back.to_vec()), (3, keys.clone()));
    assert_eq!(back, list);
    assert_eq!(body, bytes(&keys, OLD, Form::Literal));
}

fn parts() -> impl Strategy<Value = Part> {
    let names = prop_oneof![9 => "[a-z]{0,8}", 1 => "[a-z]{255,258}"];
    let second = prop::option::of(prop::collection::vec("[a-z]{0,4}", 0..3));
    (names, second, prop::option::of(any::<u64>())).prop_map(|(name, second, first)| Part { name, second, first })
}

fn places() -> impl Strategy<Value = Place> {
    prop_oneof![any::<u64>().prop_map(Place::Here), "[a-z]{0,8}".prop_map(Place::There), parts().prop_map(Place::Part),]
}

proptest! {
    #[test]
    fn what_goes_in_comes_out(
        places in prop::collection::vec(places(), 0..4),
        part in parts(),
        action in any::<u8>(),
        keys in prop::collection::vec((prop::collection::vec(any::<u8>(), 0..9), any::<Option<u64>>()), 0..5),
        pairs in prop::collection::vec((any::<u64>(), any::<Result<(), i32>>()), 0..4),
        trailing in prop::collection::vec(any::<u8>(), 0..9),
    ) {
        let metas: Vec<Meta<'_>> = keys.iter().map(|(key, sum)| Meta { key, sum: *sum }).collect();
        let whole = Whole {
            gone: 7,
            action: Action(action),
            places,
            image: Image { head: action, wide: 1 << 40, tail: 2 },
            metas: (&metas).into(),
            map: PackMap(pairs),
            pair: (1, [2, 3, 4]),
            part,
        };
        for form in [Form::Bare, Form::Literal] {
            let mut body = bytes(&whole, NEW, form);
            let back = read::<Whole<'_>>(&body, NEW);
            prop_assert_eq!(back.as_ref(), Ok(&whole));
            drop(back);
            body.extend_from_slice(&trailing);
            let back = read::<Whole<'_>>(&body, NEW);
            prop_assert_eq!(back.as_ref(), Ok(&whole));
            drop(back);
        }
    }

    #[test]
    fn cut_bodies_never_decode(name in "[a-z]{0,8}", cut in 0usize..16) {
        let value = (name, 5u64);
        let body = bytes(&value, OLD, Form::Literal);
        let cut = cut.min(body.len() - 1);
        let refused = read::<(String, u64)>(&body[..cut], OLD).is_err();
        prop_assert!(refused);
    }
}

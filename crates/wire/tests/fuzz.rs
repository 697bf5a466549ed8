//! Fuzz targets of the wire's parsers; `cargo test` runs them as property tests, `cargo bolero test` fuzzes them.

mod common;

use std::sync::atomic::{AtomicUsize, Ordering};

use bolero::check;
use common::{Reencode, recorded};
use yb_pack::SizeWidth;
use yb_wire::frame::{FrameLimits, Parsed, parse_request, parse_response};
use yb_wire::{ErrorBody, Form, Limits, Rpc, WireProfile, WireTable, WireVersion};

const LIMITS: FrameLimits = FrameLimits { max_body: 1 << 16, max_attachment: 1 << 10 };

#[test]
fn frames() {
    check!().with_iterations(20_000).for_each(|input: &[u8]| {
        parse_any(input);
        // The first bytes of a random input are almost never right, so the header is given a chance.
        let mut request = vec![21, 0, 0];
        request.extend_from_slice(input);
        parse_any(&request);
    });
}

fn parse_any(bytes: &[u8]) {
    match parse_request(bytes, &LIMITS) {
        Ok(Parsed::Frame(frame)) => {
            assert_eq!(frame.len, 20 + frame.body.len() + frame.attachment.len());
            assert!(frame.len <= bytes.len() && frame.body.len() <= 1 << 16);
        }
        Ok(Parsed::NeedMore { total }) => assert!(total > bytes.len() && total <= 20 + (1 << 16) + (1 << 10)),
        Err(_) => {}
    }
    match parse_response(bytes, &LIMITS) {
        Ok(Parsed::Frame(frame)) => assert_eq!(frame.len, 16 + frame.body.len() + frame.attachment.len()),
        Ok(Parsed::NeedMore { total }) => assert!(total > bytes.len()),
        Err(_) => {}
    }
}

#[test]
fn error_bodies() {
    check!().with_iterations(10_000).for_each(|input: &[u8]| {
        let Some((code, body)) = input.split_first() else { return };
        let _ = ErrorBody::decode(*code, body, Limits::default());
    });
}

/// Any payload behind the right head, for every function, both directions, every generation.
#[test]
fn bodies() {
    let decoded = AtomicUsize::new(0);
    check!().with_iterations(50_000).for_each(|input: &[u8]| {
        let [rpc, version, flags, payload @ ..] = input else { return };
        let rpc = Rpc::ALL[usize::from(*rpc) % Rpc::ALL.len()];
        let table = WireTable::of(WireVersion::ALL[usize::from(*version) % WireVersion::ALL.len()]);
        if body_of(rpc, table, *flags, payload) {
            decoded.fetch_add(1, Ordering::Relaxed);
        }
    });
    // About one in six of the random payloads gets past the decoder; a fuzzer starts with fewer.
    if std::env::var_os("BOLERO_FUZZER").is_none() {
        assert!(decoded.load(Ordering::Relaxed) > 100);
    }
}

/// Whether the payload decoded.
fn body_of(rpc: Rpc, table: &'static WireTable, flags: u8, payload: &[u8]) -> bool {
    let Ok(signature) = table.signature(rpc) else { return false };
    let is_request = flags & 1 == 0;
    let ty = if is_request { &signature.args } else { &signature.reply };
    let width = SizeWidth::from_selector(flags >> 1);
    let mut body = (ty.code() | 1).to_le_bytes().to_vec();
    body.push(width.selector() << 3 | (flags >> 3 & 1) << 2 | flags >> 4 & 3);
    let total = 4usize.checked_shl(u32::from(flags >> 4 & 3)).filter(|_| flags >> 4 & 3 != 0).map_or(0, |n| n / 4);
    body.resize(body.len() + total, 0xff);
    if flags >> 3 & 1 != 0 {
        body.extend_from_slice(ty.literal());
        body.push(0);
    }
    body.extend_from_slice(payload);
    stable_after_decoding(rpc, table, is_request, &body)
}

/// What decodes can be encoded, and then decodes to the same bytes: nothing is lost on the way.
fn stable_after_decoding(rpc: Rpc, table: &'static WireTable, is_request: bool, body: &[u8]) -> bool {
    let work = |body| Reencode { table, is_request, sequence: 1, body, form: Form::Bare };
    let Ok(first) = rpc.visit(work(body)) else { return false };
    let header = if is_request { 20 } else { 16 };
    let second = rpc.visit(work(&first[header..]));
    assert_eq!(second.as_ref(), Ok(&first), "{} in {}", rpc.name(), table.version());
    true
}

/// Recorded frames with bytes changed, cut and grown.
#[test]
fn mutated_recordings() {
    let frames = recorded();
    check!().with_iterations(30_000).for_each(|input: &[u8]| {
        let [a, b, edits @ ..] = input else { return };
        let frame = &frames[usize::from(u16::from_le_bytes([*a, *b])) % frames.len()];
        let mut bytes = frame.frame.clone();
        for edit in edits.chunks_exact(3) {
            let at = usize::from(u16::from_le_bytes([edit[0], edit[1]])) % (bytes.len() + 1);
            match edit[2] & 3 {
                0 => bytes.truncate(at),
                1 => bytes.insert(at, edit[2]),
                _ if at < bytes.len() => bytes[at] = edit[2],
                _ => {}
            }
        }
        let table = WireTable::of(frame.sender);
        if let Ok(Parsed::Frame(parsed)) = parse_request(&bytes, &FrameLimits::default())
            && let Some(rpc) = WireProfile::main().lookup(frame.service, parsed.header.function_id)
        {
            stable_after_decoding(rpc, table, true, parsed.body);
        }
    });
}

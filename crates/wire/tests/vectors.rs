//! Every recorded frame of the peer decodes and comes out byte for byte, but for the kinds named here.

mod common;

use common::{Recorded, Reencode, find, form_of, recorded};
use yb_wire::frame::{FrameLimits, Parsed, RequestHeader, ResponseHeader, parse_request, parse_response};
use yb_wire::{ErrorBody, Form, Limits, TransportError, WireTable};

/// Why a recorded frame does not come out as it went in.
#[derive(Debug, PartialEq)]
enum Exempt {
    /// Nobody can decode it; the peer answered transport error 4 or 11.
    Malformed,
    /// It decodes, but was written in a way that an encoder does not choose.
    NotCanonical,
    /// A struct that the peer copies with garbage in its padding.
    Padding,
}

/// Deliberately odd requests, by note.
fn exempt(frame: &Recorded) -> Option<Exempt> {
    if frame.is_request {
        match frame.note.as_str() {
            "unknown function id"
            | "declared by clients but not registered by the master"
            | "CalcCacheStats is not registered either"
            | "wrong type code"
            | "literal differs although the type code matches"
            | "truncated body"
            | "compatible value cut short"
            | "arguments of 0.3.13 (three members) are refused" => return Some(Exempt::Malformed),
            "1-byte sizes announced by an explicit metainfo byte 0x00"
            | "4-byte sizes"
            | "8-byte sizes"
            | "with type literal and 2-byte sizes"
            | "trailing bytes are ignored"
            | "single argument wrapped in a one-element tuple is accepted"
            | "request attachment is read and ignored"
            | "no metainfo total length: compatible members are not read"
            | "body of 0.3.13: no compatible members at all"
            | "total length 0: compatible members are not read"
            | "4-byte total length"
            | "only the first compatible member present" => return Some(Exempt::NotCanonical),
            _ => {}
        }
    }
    // The peer sends its stack in the padding of GrantLeasePolicy. The CUDA-IPC structs have padding too, but these
    // recordings have zeros there; maps come out in the order in which they were read.
    let padding = frame.is_request && frame.rpc == "BatchProbeKey" && frame.note.is_empty() && frame.exchange < 94;
    padding.then_some(Exempt::Padding)
}

/// True if the bytes differ in the seven bytes between `lease_mode` and `candidate_size` only.
fn differs_in_padding(sent: &[u8], encoded: &[u8]) -> bool {
    let differing: Vec<usize> = (0..sent.len()).filter(|at| encoded.get(*at) != sent.get(*at)).collect();
    let (Some(first), Some(last)) = (differing.first(), differing.last()) else { return false };
    sent.len() == encoded.len() && last - first < 7
}

/// The frame after decoding and encoding, or why that failed.
fn reencode(frame: &Recorded) -> Result<Vec<u8>, String> {
    let table = WireTable::of(frame.sender);
    let limits = FrameLimits::default();
    if frame.is_request {
        let Ok(Parsed::Frame(parsed)) = parse_request(&frame.frame, &limits) else {
            return Err("not a request frame".into());
        };
        assert_eq!(parsed.len, frame.frame.len(), "{}", frame.label());
        let rpc = table.lookup(parsed.header.function_id).ok_or("unknown function")?;
        assert_eq!((rpc.name(), rpc.service()), (frame.rpc.as_str(), frame.service), "{}", frame.label());
        let RequestHeader { sequence, .. } = parsed.header;
        let form = form_of(parsed.body);
        return rpc
            .visit(Reencode { table, is_request: true, sequence, body: parsed.body, form })
            .map_err(|e| e.to_string());
    }
    let Ok(Parsed::Frame(parsed)) = parse_response(&frame.frame, &limits) else {
        return Err("not a response frame".into());
    };
    assert_eq!(parsed.len, frame.frame.len(), "{}", frame.label());
    let ResponseHeader { sequence, error_code, .. } = parsed.header;
    if error_code != 0 {
        return reencode_error(sequence, error_code, parsed.body);
    }
    let rpc = find(table, frame.service, &frame.rpc).ok_or("unknown function")?;
    let form = form_of(parsed.body);
    rpc.visit(Reencode { table, is_request: false, sequence, body: parsed.body, form }).map_err(|e| e.to_string())
}

fn reencode_error(sequence: u32, code: u8, body: &[u8]) -> Result<Vec<u8>, String> {
    let error = ErrorBody::decode(code, body, Limits::default()).map_err(|e| e.to_string())?;
    assert!([TransportError::INVALID_ARGUMENTS, TransportError::NO_SUCH_FUNCTION].contains(&error.error));
    let message = std::str::from_utf8(error.message).map_err(|e| e.to_string())?;
    let mut out = Vec::new();
    yb_wire::encode_error_reply(sequence, error.error, message, form_of(body), &mut out);
    Ok(out)
}

#[test]
fn recorded_frames_come_out_byte_for_byte() {
    let mut failures = Vec::new();
    let mut counts = [0usize; 4];
    for frame in recorded() {
        let out = reencode(&frame);
        let same = out.as_ref().is_ok_and(|bytes| *bytes == frame.frame);
        let verdict = match exempt(&frame) {
            None => {
                counts[0] += 1;
                same
            }
            Some(Exempt::Malformed) => {
                counts[1] += 1;
                out.is_err()
            }
            Some(Exempt::NotCanonical) => {
                counts[2] += 1;
                out.is_ok() && !same
            }
            Some(Exempt::Padding) => {
                counts[3] += 1;
                out.as_ref().is_ok_and(|bytes| differs_in_padding(&frame.frame, bytes))
            }
        };
        if !verdict {
            failures.push(format!("{}: {:?}", frame.label(), out.map(|bytes| bytes == frame.frame)));
        }
    }
    assert!(failures.is_empty(), "{} frames:\n{}", failures.len(), failures.join("\n"));
    assert_eq!(counts, [906, 8, 12, 2], "equal, malformed, not canonical, padding");
}

/// The same value without literal decodes to the same value, in every frame that is not odd.
#[test]
fn both_forms_mean_the_same() {
    for frame in recorded().iter().filter(|f| exempt(f).is_none()) {
        let Ok(again) = reencode(frame) else { continue };
        let bare = Recorded { frame: bare(frame, &again), rpc: frame.rpc.clone(), note: frame.note.clone(), ..*frame };
        assert_eq!(reencode(&bare).as_ref(), Ok(&bare.frame), "{}", frame.label());
    }
}

fn bare(frame: &Recorded, bytes: &[u8]) -> Vec<u8> {
    let table = WireTable::of(frame.sender);
    let limits = FrameLimits::default();
    if frame.is_request {
        let Ok(Parsed::Frame(parsed)) = parse_request(bytes, &limits) else { panic!() };
        let rpc = table.lookup(parsed.header.function_id).expect("known");
        let sequence = parsed.header.sequence;
        return rpc
            .visit(Reencode { table, is_request: true, sequence, body: parsed.body, form: Form::Bare })
            .expect("encodes");
    }
    let Ok(Parsed::Frame(parsed)) = parse_response(bytes, &limits) else { panic!() };
    if parsed.header.error_code != 0 {
        return bytes.to_vec();
    }
    let rpc = find(table, frame.service, &frame.rpc).expect("known");
    let sequence = parsed.header.sequence;
    rpc.visit(Reencode { table, is_request: false, sequence, body: parsed.body, form: Form::Bare }).expect("encodes")
}

//! Recorded frames.
#![allow(dead_code, reason = "each test uses a part")]

use serde_json::Value;
use yb_wire::{Call, CallVisitor, Form, Limits, Rpc, Service, WireError, WireProfile, WireTable, WireVersion};

/// A line of a frame file.
pub struct Recorded {
    pub exchange: u64,
    pub rpc: String,
    pub service: Service,
    pub is_request: bool,
    /// Generation of the side that sent it.
    pub sender: WireVersion,
    pub note: String,
    pub frame: Vec<u8>,
}

impl Recorded {
    pub fn label(&self) -> String {
        let direction = if self.is_request { "request" } else { "response" };
        format!("exchange {} {} {direction} of {}, note {:?}", self.exchange, self.rpc, self.sender, self.note)
    }
}

pub fn hex(text: &str) -> Vec<u8> {
    let digit = |c: u8| (c as char).to_digit(16).expect("hex") as u8;
    text.as_bytes().chunks(2).map(|pair| digit(pair[0]) << 4 | digit(pair[1])).collect()
}

pub fn text<'v>(value: &'v Value, key: &str) -> &'v str {
    value[key].as_str().unwrap_or_default()
}

pub fn lines(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).expect("a line of JSON")).collect()
}

pub fn recorded() -> Vec<Recorded> {
    let files = [include_str!("../fixtures/store-rpc.jsonl"), include_str!("../fixtures/store-rpc-0.3.14.jsonl")];
    files.iter().flat_map(|file| lines(file)).map(|line| parse(&line)).collect()
}

fn parse(line: &Value) -> Recorded {
    let is_request = text(line, "direction") == "request";
    let sender_key = if is_request { "request_wheel" } else { "response_wheel" };
    let sender = match text(line, sender_key) {
        "" => text(line, "wheel"),
        sender => sender,
    };
    Recorded {
        exchange: line["exchange"].as_u64().expect("a number"),
        rpc: text(line, "rpc").to_owned(),
        service: if text(line, "service") == "client" { Service::Client } else { Service::Master },
        is_request,
        sender: sender.parse().expect("a generation"),
        note: text(line, "note").to_owned(),
        frame: hex(text(line, "hex")),
    }
}

/// Decodes a body with the types of `rpc` and encodes the whole frame again.
pub struct Reencode<'f> {
    pub table: &'static WireTable,
    pub is_request: bool,
    pub sequence: u32,
    pub body: &'f [u8],
    pub form: Form,
}

impl CallVisitor for Reencode<'_> {
    type Output = Result<Vec<u8>, WireError>;
    fn visit<C: Call>(self) -> Self::Output {
        let mut out = Vec::new();
        if self.is_request {
            let profile = WireProfile::exactly(self.table.version());
            let args = profile.decode_args::<C>(self.body, Limits::default())?;
            yb_wire::encode_request::<C>(self.table, self.sequence, &args, self.form, &mut out)?;
        } else {
            let reply = yb_wire::decode_reply::<C>(self.table, self.body, Limits::default())?;
            yb_wire::encode_reply::<C>(self.table, self.sequence, &reply, self.form, &mut out)?;
        }
        Ok(out)
    }
}

/// Whether a body carries its literal.
pub fn form_of(body: &[u8]) -> Form {
    match body {
        [head, _, _, _, metainfo, ..] if head & 1 != 0 && metainfo & 4 != 0 => Form::Literal,
        _ => Form::Bare,
    }
}

pub fn find(table: &WireTable, service: Service, name: &str) -> Option<Rpc> {
    Rpc::ALL.iter().copied().find(|rpc| rpc.name() == name && rpc.service() == service && table.signature(*rpc).is_ok())
}

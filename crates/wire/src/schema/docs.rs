//! The docs page, from the table.

use std::fmt::Write;

use yb_types::WireVersion;

use super::{Noun, Rpc, Service, WireTable};

const HEADER: &str = "# Functions on the wire\n\n\
Generated from the schema table of `yb-wire` (`crates/wire/src/schema/table.rs`); a test compares. To write it anew:\n\
`YB_BLESS=1 cargo test -p yb-wire --test docs`.\n\n\
Function id = first four bytes of the MD5 of the qualified name. Code = first four bytes of the MD5 of the type literal,\n\
bit 0 cleared. Types and codes are those of the newest generation; the second part lists what older ones had.\n";

/// The page `docs/wire-rpcs.md`.
pub fn render() -> String {
    let mut page = String::from(HEADER);
    for noun in [
        Noun::Session,
        Noun::Segment,
        Noun::Task,
        Noun::Lookup,
        Noun::Put,
        Noun::Remove,
        Noun::Offload,
        Noun::Nof,
        Noun::Weight,
        Noun::Peer,
        Noun::Local,
        Noun::Own,
    ] {
        chapter(noun, &mut page);
    }
    changes(&mut page);
    page
}

fn chapter(noun: Noun, page: &mut String) {
    let _ = write!(page, "\n## {}\n\n", title(noun));
    page.push_str("| function | id | since | arg code | arguments | result code | result | notes |\n");
    page.push_str("|---|---|---|---|---|---|---|---|\n");
    let table = WireTable::of(WireVersion::LATEST);
    for rpc in Rpc::ALL.iter().filter(|rpc| rpc.noun() == noun) {
        let Ok(signature) = table.signature(*rpc) else { continue };
        let (args, reply) = (rpc.row().describe)(WireVersion::LATEST);
        let since = if rpc.service() == Service::Yuebing { "ours" } else { rpc.since().name() };
        let _ = writeln!(
            page,
            "| {} | `{:08x}` | {since} | {} | {} | `{:08x}` | `{reply}` | {} |",
            rpc.name(),
            signature.function_id,
            code(signature.args.is_absent(), signature.args.code()),
            if args.is_empty() { "none".to_owned() } else { format!("`{args}`") },
            signature.reply.code(),
            rpc.row().note,
        );
    }
}

fn title(noun: Noun) -> &'static str {
    match noun {
        Noun::Session => "Session start and liveness",
        Noun::Segment => "Segments",
        Noun::Task => "Tasks, copy and move",
        Noun::Lookup => "Lookup",
        Noun::Put => "Put and upsert",
        Noun::Remove => "Removal and eviction",
        Noun::Offload => "Offload to disk and promotion",
        Noun::Nof => "NVMe-oF segments",
        Noun::Weight => "Managed weight revisions",
        Noun::Peer => "Between clients",
        Noun::Local => "Local helper service",
        Noun::Own => "Our own",
    }
}

fn code(absent: bool, code: u32) -> String {
    if absent { "–".to_owned() } else { format!("`{code:08x}`") }
}

fn changes(page: &mut String) {
    page.push_str("\n## What changed from generation to generation\n\n");
    page.push_str(
        "Functions that never changed are not listed. Each line is a form and the generations that have it.\n\n",
    );
    page.push_str("| function | from | arg code | arguments | result code | result |\n|---|---|---|---|---|---|\n");
    for rpc in Rpc::ALL {
        let forms = forms(*rpc);
        if forms.len() < 2 {
            continue;
        }
        for (version, line) in forms {
            let _ = writeln!(page, "| {} | {version} | {line} |", rpc.name());
        }
    }
}

/// The forms of a function, each with the first generation that has it.
fn forms(rpc: Rpc) -> Vec<(WireVersion, String)> {
    let mut forms: Vec<(WireVersion, String)> = Vec::new();
    for version in WireVersion::ALL {
        let Ok(signature) = WireTable::of(*version).signature(rpc) else { continue };
        let (args, reply) = (rpc.row().describe)(*version);
        let line = format!(
            "{} | `{args}` | `{:08x}` | `{reply}`",
            code(signature.args.is_absent(), signature.args.code()),
            signature.reply.code(),
        );
        if forms.last().is_none_or(|(_, last)| *last != line) {
            forms.push((*version, line));
        }
    }
    forms
}

//! Help and docs, written from the table.

use std::fmt::Write;

use crate::arguments::HelpStyle;
use crate::setting::{Class, Kind, Setting, Since, Table, Validity};

const WIDTH: usize = 100;

/// Help as gflags prints it: `-name (text) type: T default: V`.
pub fn help_gflags(table: &Table, style: &HelpStyle) -> String {
    let mut out = format!(
        "{}: flags (all may have two dashes; -helpmatch=TEXT shows those whose name contains TEXT)\n",
        table.program
    );
    for (heading, settings) in table.groups {
        let shown: Vec<_> = settings.iter().filter(|s| shown(s, style)).collect();
        if shown.is_empty() {
            continue;
        }
        let _ = writeln!(out, "\n  {heading}:");
        for setting in shown {
            let default = match setting.kind {
                Kind::Text | Kind::Duration | Kind::Bytes | Kind::List => format!("{:?}", setting.default),
                _ => setting.default.to_owned(),
            };
            let kind = setting.kind.gflags_name();
            let text = format!("-{} ({}) type: {kind} default: {default}", setting.name, full_doc(setting));
            wrap(&mut out, "    ", "      ", &text);
        }
    }
    out
}

/// Help in the style of this project's own commands, under the name that the program was called by.
pub fn help_plain(table: &Table, program: &str, style: &HelpStyle) -> String {
    let mut out = format!(
        "Usage: {program} [--NAME=VALUE]...\n\n\
         Only some of these: {program} --helpmatch=TEXT shows those whose name contains TEXT.\n\
         One dash will do; a switch is turned off by --noNAME or --NAME=false.\n"
    );
    for (heading, settings) in table.groups {
        let shown: Vec<_> = settings.iter().filter(|s| shown(s, style)).collect();
        if shown.is_empty() {
            continue;
        }
        let _ = writeln!(out, "\n{heading}");
        for setting in shown {
            let value = if setting.kind == Kind::Bool { String::new() } else { format!("=<{}>", value_name(setting)) };
            let default = if setting.default.is_empty() { "empty" } else { setting.default };
            let _ = writeln!(out, "  --{}{value}  [default: {default}]", setting.name);
            wrap(&mut out, "      ", "      ", &full_doc(setting));
        }
    }
    out
}

fn shown(setting: &Setting, style: &HelpStyle) -> bool {
    match style {
        HelpStyle::All => true,
        HelpStyle::Matching(text) => setting.name.contains(text.as_str()),
    }
}

fn value_name(setting: &Setting) -> String {
    match (setting.validity, setting.unit.name()) {
        (Validity::OneOf(legal), _) => legal.join("|"),
        (_, "") => setting.kind.gflags_name().to_owned(),
        (_, unit) => unit.to_owned(),
    }
}

fn full_doc(setting: &Setting) -> String {
    match setting.class {
        Class::Honoured => setting.doc.to_owned(),
        Class::NotBuilt(feature) => format!("{} [not built yet: {feature}]", setting.doc),
        Class::NoEffect(why) => format!("{} [no effect: {why}]", setting.doc),
    }
}

fn wrap(out: &mut String, first: &str, indent: &str, text: &str) {
    let mut column = first.len();
    out.push_str(first);
    for (i, word) in text.split_whitespace().enumerate() {
        if i > 0 && column + word.len() + 1 > WIDTH {
            out.push('\n');
            out.push_str(indent);
            column = indent.len();
        } else if i > 0 {
            out.push(' ');
            column += 1;
        }
        out.push_str(word);
        column += word.len();
    }
    out.push('\n');
}

/// The reference page in Markdown: one table per heading.
pub fn docs_page(table: &Table, title: &str, intro: &str) -> String {
    let mut out = format!("# {title}\n\n{intro}\n");
    let with_live = table.settings().any(|setting| setting.live);
    for (heading, settings) in table.groups {
        let (live, line) = if with_live { ("| live ", "|---") } else { ("", "") };
        let _ = writeln!(out, "\n## {heading}\n\n| setting | type | default | legal | since | here {live}| meaning |");
        let _ = writeln!(out, "|---|---|---|---|---|---{line}|---|");
        for setting in *settings {
            let _ = writeln!(out, "{}", docs_row(setting, with_live));
        }
    }
    out
}

fn docs_row(setting: &Setting, with_live: bool) -> String {
    let aliases: String = setting.aliases.iter().map(|a| format!(", `{a}`")).collect();
    let unit = setting.unit.name();
    let kind = setting.kind.gflags_name();
    let kind = match setting.kind {
        Kind::Duration => "duration".to_owned(),
        Kind::Bytes => "size".to_owned(),
        Kind::List => "list".to_owned(),
        _ if unit.is_empty() => kind.to_owned(),
        _ => format!("{kind}, {unit}"),
    };
    let default = if setting.default.is_empty() { "empty".to_owned() } else { format!("`{}`", setting.default) };
    let legal = match setting.validity {
        Validity::Any => String::new(),
        Validity::Range(low, high) => format!("{low} to {high}"),
        Validity::Ratio(low, high) => format!("{low} to {high}"),
        Validity::OneOf(legal) => legal.iter().map(|l| format!("`{l}`")).collect::<Vec<_>>().join(" "),
    };
    let since = match setting.since {
        Since::V0_3_13 => "0.3.13",
        Since::V0_3_14 => "0.3.14",
        Since::Ours => "ours",
    };
    let here = match setting.class {
        Class::Honoured => "honoured".to_owned(),
        Class::NotBuilt(feature) => format!("not built: {feature}"),
        Class::NoEffect(why) => format!("no effect: {why}"),
    };
    let environment = setting.env.map(|v| format!(" Environment: `{v}`.")).unwrap_or_default();
    let doc = format!("{}{environment}", setting.doc).replace('|', "\\|");
    let live = match (with_live, setting.live) {
        (false, _) => "",
        (true, true) => "yes | ",
        (true, false) => " | ",
    };
    format!("| `{}`{aliases} | {kind} | {default} | {legal} | {since} | {here} | {live}{doc} |", setting.name)
}

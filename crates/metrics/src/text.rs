//! The Prometheus text format, version 0.0.4.

use std::collections::BTreeSet;
use std::fmt::{Display, Write};

/// Writes families and samples.
///
/// ```
/// let mut out = yb_metrics::TextWriter::default();
/// out.family("used_bytes", "gauge", "Bytes in use");
/// out.sample("used_bytes", &[("segment", "a\"b")], 7);
/// assert_eq!(
///     out.into_string(),
///     "# HELP used_bytes Bytes in use\n# TYPE used_bytes gauge\nused_bytes{segment=\"a\\\"b\"} 7\n"
/// );
/// ```
#[derive(Debug, Default)]
pub struct TextWriter {
    text: String,
    families: BTreeSet<String>,
}

impl TextWriter {
    /// The two comment lines before the samples of a family; `kind` is `counter`, `gauge` or `histogram`.
    pub fn family(&mut self, name: &str, kind: &str, help: &str) {
        self.families.insert(name.to_owned());
        let help = help.replace('\\', "\\\\").replace('\n', "\\n");
        let _ = writeln!(self.text, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    /// True when a family of this name was written.
    pub fn has(&self, name: &str) -> bool {
        self.families.contains(name)
    }

    /// One line: name, labels, value.
    pub fn sample(&mut self, name: &str, labels: &[(&str, &str)], value: impl Display) {
        self.text.push_str(name);
        for (i, (label, text)) in labels.iter().enumerate() {
            self.text.push(if i == 0 { '{' } else { ',' });
            let _ = write!(self.text, "{label}=\"");
            self.escaped(text);
            self.text.push('"');
        }
        if !labels.is_empty() {
            self.text.push('}');
        }
        let _ = writeln!(self.text, " {value}");
    }

    /// A gauge without labels, with its comments.
    pub fn gauge(&mut self, name: &str, help: &str, value: impl Display) {
        self.family(name, "gauge", help);
        self.sample(name, &[], value);
    }

    /// A counter kept elsewhere, with its comments.
    pub fn counter(&mut self, name: &str, help: &str, value: u64) {
        self.family(name, "counter", help);
        self.sample(name, &[], value);
    }

    fn escaped(&mut self, text: &str) {
        for c in text.chars() {
            match c {
                '\\' => self.text.push_str("\\\\"),
                '"' => self.text.push_str("\\\""),
                '\n' => self.text.push_str("\\n"),
                c => self.text.push(c),
            }
        }
    }

    /// The text.
    pub fn into_string(self) -> String {
        self.text
    }
}

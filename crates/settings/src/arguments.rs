//! Arguments in the syntax of gflags.

use crate::SettingsError;
use crate::setting::{Kind, Table};
use crate::values::Given;

/// Deepest nesting of `--flagfile`.
const MAX_FLAGFILE_DEPTH: usize = 8;

/// How help was asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HelpStyle {
    /// `-h`, `--help`, `--helpfull`, `--helpshort`, `--helppackage`, `--helpon`, `--helpxml`.
    All,
    /// `--helpmatch=TEXT`: only names that contain the text.
    Matching(String),
}

/// What the arguments ask for.
#[derive(Clone, Debug)]
pub enum Arguments {
    /// Run with these settings.
    Run(Given),
    /// Print help and leave.
    Help(HelpStyle),
    /// Print the version and leave.
    Version,
}

/// Reads arguments (without the program's name): `-flag`, `--flag`, `--flag=value`, `--flag value`, `--noflag`, `--`,
/// dashes for underscores, and gflags' own `flagfile`, `fromenv`, `tryfromenv`, `undefok`, `help…`, `version`.
///
/// # Errors
/// An unknown flag (the nearest known one is named), an illegal or missing value, an unreadable flag file.
pub fn parse_arguments(
    table: &Table,
    arguments: &[String],
    environment: &dyn Fn(&str) -> Option<String>,
) -> Result<Arguments, SettingsError> {
    let mut parser = Parser { table, environment, given: Given::default(), answer: None, tolerated: Vec::new() };
    parser.tolerated = tolerated(arguments);
    parser.run(arguments, 0)?;
    Ok(parser.answer.unwrap_or(Arguments::Run(parser.given)))
}

/// Names after `--undefok`: unknown flags that are passed over.
fn tolerated(arguments: &[String]) -> Vec<String> {
    let lists = arguments.iter().filter_map(|a| a.trim_start_matches('-').strip_prefix("undefok="));
    lists.flat_map(|list| list.split(',').map(|n| n.trim_start_matches('-').replace('-', "_"))).collect()
}

struct Parser<'a> {
    table: &'a Table,
    environment: &'a dyn Fn(&str) -> Option<String>,
    given: Given,
    answer: Option<Arguments>,
    tolerated: Vec<String>,
}

impl Parser<'_> {
    fn run(&mut self, arguments: &[String], depth: usize) -> Result<(), SettingsError> {
        let mut rest = arguments.iter();
        while let Some(argument) = rest.next() {
            if argument == "--" {
                return rest.next().map_or(Ok(()), |extra| Err(SettingsError::Positional(extra.clone())));
            }
            let Some(body) = argument.strip_prefix("--").or_else(|| argument.strip_prefix('-')) else {
                return Err(SettingsError::Positional(argument.clone()));
            };
            let (name, value) = match body.split_once('=') {
                Some((name, value)) => (name.replace('-', "_"), Some(value)),
                None => (body.replace('-', "_"), None),
            };
            if !self.special(&name, value, &mut rest, depth)? {
                self.setting(&name, value, &mut rest)?;
            }
        }
        Ok(())
    }

    /// gflags' own flags. False when the name is not one of them.
    fn special<'s>(
        &mut self,
        name: &str,
        value: Option<&'s str>,
        rest: &mut std::slice::Iter<'s, String>,
        depth: usize,
    ) -> Result<bool, SettingsError> {
        match name {
            "h" | "help" | "helpfull" | "helpshort" | "helppackage" | "helpxml" => {
                self.answer = Some(Arguments::Help(HelpStyle::All));
            }
            "version" => self.answer = Some(Arguments::Version),
            "helpon" | "helpmatch" | "flagfile" | "fromenv" | "tryfromenv" | "undefok" => {
                let value = match value.or_else(|| rest.next().map(String::as_str)) {
                    Some(value) => value,
                    None => return Err(SettingsError::MissingValue(name.to_owned())),
                };
                self.special_with_value(name, value, depth)?;
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn special_with_value(&mut self, name: &str, value: &str, depth: usize) -> Result<(), SettingsError> {
        match name {
            "helpon" => self.answer = Some(Arguments::Help(HelpStyle::All)),
            "helpmatch" => self.answer = Some(Arguments::Help(HelpStyle::Matching(value.to_owned()))),
            "flagfile" => {
                for path in value.split(',').filter(|p| !p.is_empty()) {
                    self.flag_file(path, depth)?;
                }
            }
            "fromenv" | "tryfromenv" => {
                for flag in value.split(',').filter(|f| !f.is_empty()) {
                    match (self.environment)(&format!("FLAGS_{flag}")) {
                        Some(text) => self.setting(flag, Some(&text), &mut [].iter())?,
                        None if name == "tryfromenv" => {}
                        None => return Err(SettingsError::NoEnvironment(flag.to_owned())),
                    }
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn flag_file(&mut self, path: &str, depth: usize) -> Result<(), SettingsError> {
        let failed = |why: String| SettingsError::File { path: path.to_owned(), why };
        if depth >= MAX_FLAGFILE_DEPTH {
            return Err(failed(format!("flag files are nested more than {MAX_FLAGFILE_DEPTH} deep")));
        }
        let text = crate::file::bounded(path).map_err(failed)?;
        let lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
        let arguments: Vec<String> = lines.map(str::to_owned).collect();
        self.run(&arguments, depth + 1)
    }

    fn setting<'s>(
        &mut self,
        name: &str,
        value: Option<&'s str>,
        rest: &mut std::slice::Iter<'s, String>,
    ) -> Result<(), SettingsError> {
        if let Some(setting) = self.table.find(name) {
            let text = match (value, setting.kind) {
                (Some(text), _) => text,
                (None, Kind::Bool) => "true",
                (None, _) => match rest.next() {
                    Some(text) => text.as_str(),
                    None => return Err(SettingsError::MissingValue(name.to_owned())),
                },
            };
            return self.given.set(setting, text);
        }
        if let (Some(positive), None) = (name.strip_prefix("no"), value)
            && let Some(setting) = self.table.find(positive).filter(|s| s.kind == Kind::Bool)
        {
            return self.given.set(setting, "false");
        }
        if self.tolerated.iter().any(|t| t == name) {
            return Ok(());
        }
        Err(self.table.unknown("flag", &format!("--{name}"), "--"))
    }
}

//! The NIC priority matrix: for every location of memory, which NICs come first and which may stand in.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde_json::{Map, Value, json};

use crate::natural;

/// The NICs of one location. A NIC stands in one of the lists at most.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Preference {
    /// Near the memory: used first.
    pub preferred: Vec<String>,
    /// Usable, but farther away.
    pub others: Vec<String>,
}

/// Location text (`cpu:0`, `cuda:3`) to its NICs, in the byte order of the locations, as the peer writes it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Matrix(pub BTreeMap<String, Preference>);

/// The text was not a priority matrix.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a NIC priority matrix: {0}")]
pub struct MatrixError(String);

impl Matrix {
    /// Reads `{"cpu:0": [["near"], ["far"]], ..}`.
    ///
    /// # Errors
    /// When the text is not JSON of that shape; nothing of it is used then.
    pub fn parse(text: &str) -> Result<Self, MatrixError> {
        let value: Value = serde_json::from_str(text).map_err(|error| MatrixError(error.to_string()))?;
        Self::from_json(&value)
    }

    /// As [`Matrix::parse`], from a parsed document.
    ///
    /// # Errors
    /// When the value has another shape.
    pub fn from_json(value: &Value) -> Result<Self, MatrixError> {
        let Value::Object(map) = value else { return Err(MatrixError("not an object".to_owned())) };
        let rows = map.iter().map(|(location, row)| Ok((location.clone(), preference(location, row)?)));
        rows.collect::<Result<_, _>>().map(Matrix)
    }

    /// The compact form, as it stands in a SegmentDesc.
    pub fn to_json(&self) -> Value {
        let rows = self.0.iter().map(|(location, row)| (location.clone(), json!([row.preferred, row.others])));
        Value::Object(Map::from_iter(rows))
    }

    /// The text that people read, byte for byte as the peer prints it: tabs, one name a line, a newline at the end.
    pub fn to_text(&self) -> String {
        if self.0.is_empty() {
            return "{}\n".to_owned();
        }
        let rows = self.0.iter().map(|(location, row)| {
            let lists = [&row.preferred, &row.others].map(|names| list(names));
            format!("\n\t{} : \n\t[\n\t\t{},\n\t\t{}\n\t]", quoted(location), lists[0], lists[1])
        });
        format!("{{{}\n}}\n", rows.collect::<Vec<_>>().join(","))
    }

    /// Every NIC named anywhere, once, in natural order.
    pub fn nics(&self) -> Vec<&str> {
        let lists = self.0.values().flat_map(|row| row.preferred.iter().chain(&row.others));
        let mut names: Vec<&str> = lists.map(String::as_str).collect();
        names.sort_by(|a, b| natural::compare(a, b));
        names.dedup();
        names
    }

    /// The NICs of a location: near ones, then the others. A location that is not named may use every NIC (`*`).
    pub fn of(&self, location: &str) -> Preference {
        self.0.get(location).cloned().unwrap_or_else(|| Preference {
            preferred: self.nics().into_iter().map(str::to_owned).collect(),
            others: Vec::new(),
        })
    }

    /// Keeps only the NICs that `allowed` says yes to; locations stay.
    pub fn retain(&mut self, allowed: impl Fn(&str) -> bool) {
        for row in self.0.values_mut() {
            row.preferred.retain(|name| allowed(name));
            row.others.retain(|name| allowed(name));
        }
    }
}

fn preference(location: &str, row: &Value) -> Result<Preference, MatrixError> {
    let wrong = || MatrixError(format!("{location:?} is not a pair of lists of names"));
    let Some([preferred, others]) = row.as_array().map(Vec::as_slice) else { return Err(wrong()) };
    let names = |list: &Value| -> Option<Vec<String>> {
        let mut names: Vec<String> = Vec::new();
        for name in list.as_array()? {
            let name = name.as_str().filter(|name| !name.is_empty())?.to_owned();
            if !names.contains(&name) {
                names.push(name);
            }
        }
        Some(names)
    };
    let preferred = names(preferred).ok_or_else(wrong)?;
    let mut others = names(others).ok_or_else(wrong)?;
    others.retain(|name| !preferred.contains(name));
    Ok(Preference { preferred, others })
}

fn list(names: &[String]) -> String {
    if names.is_empty() {
        return "[]".to_owned();
    }
    let mut text = String::from("[");
    for (index, name) in names.iter().enumerate() {
        let comma = if index == 0 { "" } else { "," };
        let _ = write!(text, "{comma}\n\t\t\t{}", quoted(name));
    }
    text + "\n\t\t]"
}

fn quoted(text: &str) -> String {
    Value::from(text).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TWO: &str = r#"{"cpu:0":[["mlx5_0"],["mlx5_1"]],"cpu:1":[["mlx5_1"],["mlx5_0"]]}"#;

    #[test]
    fn both_forms_are_written_as_the_peer_writes_them() {
        let matrix = Matrix::parse(TWO).unwrap();
        assert_eq!(serde_json::to_string(&matrix.to_json()).unwrap(), TWO);
        assert_eq!(
            Matrix::parse(r#"{"cpu:0":[[],[]]}"#).unwrap().to_text(),
            "{\n\t\"cpu:0\" : \n\t[\n\t\t[],\n\t\t[]\n\t]\n}\n"
        );
        let one = Matrix::parse(r#"{"cpu:0":[["a","b"],[]],"cpu:1":[[],["a"]]}"#).unwrap();
        let text = "{\n\t\"cpu:0\" : \n\t[\n\t\t[\n\t\t\t\"a\",\n\t\t\t\"b\"\n\t\t],\n\t\t[]\n\t],\n\t\"cpu:1\" : \n\t[\n\t\t[],\n\t\t[\n\t\t\t\"a\"\n\t\t]\n\t]\n}\n";
        assert_eq!(one.to_text(), text);
        assert_eq!(Matrix::parse(text).unwrap(), one);
        assert_eq!(Matrix::default().to_text(), "{}\n");
    }

    #[test]
    fn a_nic_counts_once_and_an_unknown_location_may_use_all() {
        let mut matrix = Matrix::parse(r#"{"cpu:0":[["mlx5_10","mlx5_2","mlx5_2"],["mlx5_2","mlx5_1"]]}"#).unwrap();
        assert_eq!(matrix.nics(), ["mlx5_1", "mlx5_2", "mlx5_10"]);
        assert_eq!(matrix.of("cpu:0").others, ["mlx5_1"]);
        assert_eq!(matrix.of("cuda:7").preferred, ["mlx5_1", "mlx5_2", "mlx5_10"]);
        matrix.retain(|name| name == "mlx5_1");
        assert_eq!(matrix.nics(), ["mlx5_1"]);
        assert!(matrix.of("cpu:0").preferred.is_empty());
    }

    #[test]
    fn other_shapes_are_refused_whole() {
        for bad in [
            "",
            "[]",
            "5",
            r#"{"a":1}"#,
            r#"{"a":[[]]}"#,
            r#"{"a":[["x"],5]}"#,
            r#"{"a":[[""],[]]}"#,
            r#"{"a":[[],[],[]]}"#,
        ] {
            assert!(Matrix::parse(bad).is_err(), "{bad}");
        }
    }
}

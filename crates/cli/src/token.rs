//! The token that calls which change something need, if the master has one (setting `admin_token`).

use crate::failure::{Failure, Outcome};

/// Where it stands.
const TOKEN: &str = "YUEBING_ADMIN_TOKEN";
/// Or the file in whose first line it is.
const TOKEN_FILE: &str = "YUEBING_ADMIN_TOKEN_FILE";

/// A token and where it is from.
pub struct Token {
    /// Shown to the master and to nobody else.
    pub text: String,
    /// For messages.
    whence: String,
}

impl Token {
    /// Of the environment; `None`: none is set there.
    ///
    /// # Errors
    /// A file that cannot be read or has none in its first line; a token that no header can carry.
    pub fn from_env() -> Outcome<Option<Token>> {
        Token::find(|name| std::env::var(name).ok())
    }

    fn find(variable: impl Fn(&str) -> Option<String>) -> Outcome<Option<Token>> {
        let set = |name| variable(name).filter(|text| !text.is_empty());
        let token = match (set(TOKEN), set(TOKEN_FILE)) {
            (Some(text), _) => Token { text, whence: TOKEN.to_owned() },
            (None, Some(path)) => {
                let whence = format!("{TOKEN_FILE} ({path})");
                let text = std::fs::read_to_string(&path)
                    .map_err(|error| Failure::failed(format!("{whence} cannot be read: {error}")))?;
                Token { text: text.lines().next().unwrap_or_default().trim().to_owned(), whence }
            }
            (None, None) => return Ok(None),
        };
        if token.text.is_empty() {
            return Err(Failure::failed(format!("{}: its first line is empty", token.whence)));
        }
        if token.text.contains(|c: char| c.is_control()) {
            return Err(Failure::failed(format!("{}: a token is one line of text", token.whence)));
        }
        Ok(Some(token))
    }
}

/// What helps where the master asks for a token and this one was shown.
pub fn hint(shown: Option<&Token>) -> String {
    match shown {
        Some(token) => format!("the token of {} is not the master's admin_token", token.whence),
        None => format!("set {TOKEN}, or {TOKEN_FILE}, to the master's admin_token"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_that_cannot_be_had_is_told() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token").display().to_string();
        let find = |token: &str, file: &str| {
            let (token, file) = (token.to_owned(), file.to_owned());
            Token::find(move |name| Some(if name == TOKEN { token.clone() } else { file.clone() }))
        };
        assert!(find("", "").unwrap().is_none());
        assert_eq!(find("abc", &path).unwrap().unwrap().text, "abc", "the variable itself goes first");
        let failed = |token: &str| find(token, &path).err().unwrap().to_string();
        let missing = failed("");
        assert!(
            missing.contains(TOKEN_FILE) && missing.contains(&path) && missing.contains("No such file"),
            "{missing}"
        );
        std::fs::write(&path, "\nsecond").unwrap();
        assert!(failed("").contains("first line is empty"));
        std::fs::write(&path, " one \n").unwrap();
        let found = find("", &path).unwrap();
        assert_eq!(found.as_ref().unwrap().text, "one");
        assert!(hint(found.as_ref()).contains(&path) && !hint(found.as_ref()).contains("one "));
        let broken = failed("two\nlines, secret");
        assert!(broken.contains("one line") && !broken.contains("secret"), "{broken}");
    }
}
